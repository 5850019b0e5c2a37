// The flow ID of a packet, and the one hash from which all meter rows take disjoint bits. Rows of
// CRCs that differ in a constant or a seed would collide together, because CRC is linear.

control Flow(inout headers_t hdr, inout metadata_t meta) {
    apply {
        if (hdr.l4.isValid() && !hdr.inner_ipv4.isValid()) {
            meta.flow_valid = 1;
            meta.flow_id = hdr.ipv4.src_ip ++ hdr.ipv4.dst_ip ++ hdr.l4.src_port
                ++ hdr.l4.dst_port ++ hdr.ipv4.protocol;
            hash(meta.flow_hash, HashAlgorithm.crc32, 32w0, { meta.flow_id }, 64w0x100000000);
            if (hdr.ipv4.ttl >= MIN_COUNTED_TTL) {
                meta.countable = 1;
            }
        }
    }
}
