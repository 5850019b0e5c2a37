// The actions and tables of `Routing` (p4/include/routing.p4), within a control block that chooses an
// uplink otherwise. The block has the selector and the variable `upward`.

    action forward(bit<9> port, bit<48> mac) {
        hdr.ethernet.src_mac = hdr.ethernet.dst_mac;
        hdr.ethernet.dst_mac = mac;
        std.egress_spec = port;
    }
    action deliver(bit<9> port, bit<48> mac) {
        forward(port, mac);
        meta.to_host = 1;
    }
    action up() {
        upward = 1;
    }
    action unroutable() {
        DROP(meta, hdr, std, CAUSE_NO_ROUTE);
    }
    action local() {
        DROP(meta, hdr, std, CAUSE_LOCAL);
    }

    table routes {
        key = { hdr.ipv4.dst_ip : lpm; }
        actions = { forward; deliver; up; local; unroutable; }
        default_action = unroutable;
        size = ROUTES;
    }
    table uplinks {
        key = {
            upward         : exact;
            meta.ecmp_hash : selector;
        }
        actions = { forward; unroutable; }
        default_action = unroutable;
        implementation = uplink_selector;
        size = 1;
    }
