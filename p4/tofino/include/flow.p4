// The flow of a packet, and the one hash from which all meter rows take disjoint bits: v1model's.

control Flow(inout headers_t hdr, inout metadata_t meta) {
    Hash<bit<32>>(HashAlgorithm_t.CRC32) crc;
    Hash<bit<32>>(HashAlgorithm_t.CRC32) crc_again;

    action identify_flow() {
        meta.flow_valid = 1;
        meta.ports = hdr.l4.src_port ++ hdr.l4.dst_port;
    }
    action hash_flow() {
        meta.flow_hash = crc.get({
            hdr.ipv4.src_ip, hdr.ipv4.dst_ip, hdr.l4.src_port, hdr.l4.dst_port, hdr.ipv4.protocol
        });
    }
    action hash_flow_again() {           // a table hands out 32 bits of hashes
        meta.flow_mix = crc_again.get({
            hdr.ipv4.src_ip, hdr.ipv4.dst_ip, hdr.l4.src_port, hdr.l4.dst_port, hdr.ipv4.protocol
        })[31:16];
    }

    apply {
        if (hdr.l4.isValid() && !hdr.inner_ipv4.isValid()) {
            identify_flow();
            hash_flow();
            hash_flow_again();
            if (hdr.ipv4.ttl >= MIN_COUNTED_TTL) {
                meta.countable = 1;
            }
        }
    }
}
