// The flow of a packet: the one hash from which all meter rows take disjoint bits, v1model's.

control Flow(inout headers_t hdr, inout metadata_t meta) {
    Hash<bit<32>>(HashAlgorithm_t.CRC32) crc;
    Hash<bit<32>>(HashAlgorithm_t.CRC32) crc_again;

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
        if (meta.flow_valid == 1) {
            hash_flow();
        }
        if (meta.flow_valid == 1) {
            hash_flow_again();
        }
        if (meta.flow_valid == 1 && hdr.ipv4.ttl >= MIN_COUNTED_TTL) {
            meta.countable = 1;
        }
    }
}
