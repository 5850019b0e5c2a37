// Encodes this switch into pathBF; a monitor switch begins a new segment (Canary, section III-B).

control PathBf(inout headers_t hdr, inout metadata_t meta) {
    apply {
        if (meta.monitor == 1) {
            hdr.shim.path_bf = 0;
            hdr.shim.counted = 0;
            hdr.shim.parity = 0;
        }
        hdr.shim.path_bf = hdr.shim.path_bf | meta.mask;
    }
}
