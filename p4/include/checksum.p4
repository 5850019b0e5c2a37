// IPv4 and ICMP checksums. A corrupted packet leaves with the checksum it came with, which the
// decremented TTL has made wrong, so the next hop discards it.

#define IPV4_FIELDS(ip) { ip.version, ip.ihl, ip.tos, ip.total_length, ip.id, ip.flags, \
    ip.fragment, ip.ttl, ip.protocol, ip.src_ip, ip.dst_ip }

// What an ICMP error's sum is over, before the 8 bytes that it quotes behind the IPv4 header.
#define QUOTE(hdr) \
    hdr.icmp.type, hdr.icmp.code, hdr.icmp.unused, \
    hdr.inner_ipv4.version, hdr.inner_ipv4.ihl, hdr.inner_ipv4.tos, \
    hdr.inner_ipv4.total_length, hdr.inner_ipv4.id, hdr.inner_ipv4.flags, \
    hdr.inner_ipv4.fragment, hdr.inner_ipv4.ttl, hdr.inner_ipv4.protocol, \
    hdr.inner_ipv4.checksum, hdr.inner_ipv4.src_ip, hdr.inner_ipv4.dst_ip

control VerifyChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5, IPV4_FIELDS(hdr.ipv4),
                        hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control ComputeChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5 && meta.corrupted == 0,
                        IPV4_FIELDS(hdr.ipv4), hdr.ipv4.checksum, HashAlgorithm.csum16);
        update_checksum(hdr.icmp.isValid() && hdr.l4.isValid(), {
            QUOTE(hdr), hdr.l4.src_port, hdr.l4.dst_port, hdr.l4.rest
        }, hdr.icmp.checksum, HashAlgorithm.csum16);
        update_checksum(hdr.icmp.isValid() && hdr.echo.isValid(), {
            QUOTE(hdr), hdr.echo.type, hdr.echo.code, hdr.echo.checksum, hdr.echo.unused
        }, hdr.icmp.checksum, HashAlgorithm.csum16);
    }
}
