// The upstream meter: counts what is about to leave of the selected flows, and marks it with this
// switch's epoch parity (Canary, section III-C, algorithm 2 and section III-G).

control UsmRow(in headers_t hdr, in bit<32> ports, in bucket_t bucket) {
    Register<bit<32>, bucket_t>(METER_BUCKETS, 0) count;
    Register<addresses_t, bucket_t>(METER_BUCKETS, {0, 0}) addresses;
    Register<bit<32>, bucket_t>(METER_BUCKETS, 0) ports_only;
    Register<protocol_and_dirty_t, bucket_t>(METER_BUCKETS, {0, 0}) protocol_and_dirty;
    bit<32> n;
    bit<1> differs;
    bit<1> differs_too;

    RegisterAction<bit<32>, bucket_t, bit<32>>(count) count_one = {
        void apply(inout bit<32> value, out bit<32> before) {
            before = value;
            value = value + 1;
        }
    };
    RegisterAction<addresses_t, bucket_t, bit<1>>(addresses) take_addresses = {
        void apply(inout addresses_t value) {
            value.src_ip = hdr.ipv4.src_ip;
            value.dst_ip = hdr.ipv4.dst_ip;
        }
    };
    RegisterAction<addresses_t, bucket_t, bit<1>>(addresses) compare_addresses = {
        void apply(inout addresses_t value, out bit<1> differ) {
            differ = 0;
            if (value.src_ip != hdr.ipv4.src_ip || value.dst_ip != hdr.ipv4.dst_ip) {
                differ = 1;
            }
        }
    };
    RegisterAction<bit<32>, bucket_t, bit<1>>(ports_only) take_ports = {
        void apply(inout bit<32> value) {
            value = ports;
        }
    };
    RegisterAction<bit<32>, bucket_t, bit<1>>(ports_only) compare_ports = {
        void apply(inout bit<32> value, out bit<1> differ) {
            differ = 0;
            if (value != ports) {
                differ = 1;
            }
        }
    };
    RegisterAction<protocol_and_dirty_t, bucket_t, bit<8>>(protocol_and_dirty) take_protocol = {
        void apply(inout protocol_and_dirty_t value) {
            value.protocol = hdr.ipv4.protocol;
        }
    };
    RegisterAction<protocol_and_dirty_t, bucket_t, bit<8>>(protocol_and_dirty) compare_protocol = {
        void apply(inout protocol_and_dirty_t value) {
            if (value.protocol != hdr.ipv4.protocol) {
                value.dirty = 1;
            }
        }
    };
    RegisterAction<protocol_and_dirty_t, bucket_t, bit<8>>(protocol_and_dirty) soil = {
        void apply(inout protocol_and_dirty_t value) {
            value.dirty = 1;
        }
    };

    apply {
        if (hdr.shim.counted == 1) {
            n = count_one.execute(bucket);
        }
        if (hdr.shim.counted == 1 && n == 0) {
            take_addresses.execute(bucket);
        } else if (hdr.shim.counted == 1) {
            differs = compare_addresses.execute(bucket);
        }
        if (hdr.shim.counted == 1 && n == 0) {
            take_ports.execute(bucket);
        } else if (hdr.shim.counted == 1) {
            differs_too = compare_ports.execute(bucket);
        }
        if (hdr.shim.counted == 1 && n == 0) {
            take_protocol.execute(bucket);
        } else if (hdr.shim.counted == 1 && differs == 0 && differs_too == 0) {
            compare_protocol.execute(bucket);
        } else if (hdr.shim.counted == 1) {
            soil.execute(bucket);
        }
    }
}

control Usm(inout headers_t hdr) {
    UsmRow() row0;
    UsmRow() row1;
    UsmRow() row2;
    DirectCounter<bit<32>>(CounterType_t.PACKETS) matched;

    action monitor() {
        hdr.shim.counted = 1;
        matched.count();
    }
    action skip() {
        matched.count();
    }
    table rules {
        key = {
            hdr.ipv4.src_ip   : exact;
            hdr.ipv4.dst_ip   : exact;
            hdr.l4.src_port   : exact;
            hdr.l4.dst_port   : exact;
            hdr.ipv4.protocol : exact;
        }
        actions = { monitor; skip; }
        default_action = skip;
        counters = matched;
        size = USM_RULES;
    }

    apply {
        rules.apply();                   // ingress left `counted` 0
        if (hdr.shim.counted == 1) {     // a constant and a field of one byte are two actions
            hdr.shim.parity = hdr.bridge.parity;
        }
        row0.apply(hdr, hdr.l4.src_port ++ hdr.l4.dst_port,
                   hdr.bridge.parity ++ hdr.bridge.flow_hash[9:0]);
        row1.apply(hdr, hdr.l4.src_port ++ hdr.l4.dst_port,
                   hdr.bridge.parity ++ hdr.bridge.flow_hash[19:10]);
        row2.apply(hdr, hdr.l4.src_port ++ hdr.l4.dst_port,
                   hdr.bridge.parity ++ hdr.bridge.flow_hash[29:20]);
    }
}
