// What this switch is (set once) and which epoch it is in (changed at every epoch). A switch of the
// transit profile takes `monitor` and does not act on it; own_ip is in the parser's value set.

control Identity(inout headers_t hdr, inout metadata_t meta) {
    action identify(bit<1> monitor, bit<1> upper_tier, path_bf_t mask, bit<32> own_ip) {
        meta.monitor = monitor;
        meta.upper_tier = upper_tier;
        meta.mask = mask;
    }
    table identity {
        actions = { identify; NoAction; }
        default_action = NoAction;
        size = 1;
    }

    action set_parity(bit<1> parity) {
        meta.parity = parity;
    }
    table epoch {
        actions = { set_parity; }
        default_action = set_parity(0);
        size = 1;
    }

    apply {
        identity.apply();
        epoch.apply();
    }
}
