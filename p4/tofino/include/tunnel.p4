// IP-in-IP addressed to this switch loses its outer header and goes on: a core switch bounces a
// NetBouncer probe back (NetBouncer, section 3.2).

control Tunnel(inout headers_t hdr, inout metadata_t meta) {
    apply {
        if (hdr.inner_ipv4.isValid() && hdr.ipv4.dst_ip == meta.own_ip) {
            hdr.ipv4 = hdr.inner_ipv4;
            hdr.inner_ipv4.setInvalid();
        }
    }
}
