// Encodes this switch into pathBF; a monitor switch begins a new segment (Canary, section III-B),
// and so does the first switch, which inserts the shim.

control PathBf(inout headers_t hdr, inout metadata_t meta) {
    apply {
        if (meta.from_host == 1) {
            hdr.shim.setValid();
            hdr.shim.path_bf = meta.mask;
            hdr.shim.counted = 0;
            hdr.shim.parity = 0;
            hdr.shim.reserved = 0;
            hdr.shim.ether_type = ETHERTYPE_IPV4;
            hdr.ethernet.ether_type = ETHERTYPE_SHIM;
        } else {
#ifdef MONITOR
            if (meta.monitor == 1) {
                hdr.shim.path_bf = meta.mask;
                hdr.shim.counted = 0;
                hdr.shim.parity = 0;
            } else {
                hdr.shim.path_bf = hdr.shim.path_bf | meta.mask;
            }
#else
            hdr.shim.path_bf = hdr.shim.path_bf | meta.mask;
#endif
        }
    }
}
