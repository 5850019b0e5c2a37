// The downstream meter: counts what arrived of the selected flows, with the pathBF they carried
// (Canary, section III-C and algorithm 1). A packet that its upstream counted and that no rule
// expects here is of a flow that left its path segment: it makes its buckets dirty.

#define COUNTING (counting == 1)

control DsmRow(in headers_t hdr, in bit<1> counting, in bit<1> monitored, in bit<32> ports,
               in bucket_t bucket) {
    Register<bit<32>, bucket_t>(METER_BUCKETS, 0) count;
    Register<addresses_t, bucket_t>(METER_BUCKETS, {0, 0}) addresses;
    Register<ports_and_path_t, bucket_t>(METER_BUCKETS, {0, 0}) ports_and_path;
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
    RegisterAction<ports_and_path_t, bucket_t, bit<1>>(ports_and_path) take_ports_and_path = {
        void apply(inout ports_and_path_t value) {
            value.ports = ports;
            value.path_bf = hdr.shim.path_bf;
        }
    };
    RegisterAction<ports_and_path_t, bucket_t, bit<1>>(ports_and_path) compare_ports_and_path = {
        void apply(inout ports_and_path_t value, out bit<1> differ) {
            differ = 0;
            if (value.ports != ports || value.path_bf != hdr.shim.path_bf) {
                differ = 1;
            }
        }
    };
    RegisterAction<protocol_and_dirty_t, bucket_t, bit<8>>(protocol_and_dirty) take_protocol = {
        void apply(inout protocol_and_dirty_t value) {
            value.protocol = hdr.ipv4.protocol;
        }
    };
    RegisterAction<protocol_and_dirty_t, bucket_t, bit<8>>(protocol_and_dirty) take_unexpected = {
        void apply(inout protocol_and_dirty_t value) {
            value.protocol = hdr.ipv4.protocol;
            value.dirty = 1;
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
        if (COUNTING) {
            n = count_one.execute(bucket);
        }
        if (COUNTING && n == 0) {
            take_addresses.execute(bucket);
        } else if (COUNTING) {
            differs = compare_addresses.execute(bucket);
        }
        if (COUNTING && n == 0) {
            take_ports_and_path.execute(bucket);
        } else if (COUNTING) {
            differs_too = compare_ports_and_path.execute(bucket);
        }
        if (COUNTING && n == 0 && monitored == 1) {
            take_protocol.execute(bucket);
        } else if (COUNTING && n == 0) {
            take_unexpected.execute(bucket);
        } else if (COUNTING && differs == 0 && differs_too == 0 && monitored == 1) {
            compare_protocol.execute(bucket);
        } else if (COUNTING) {
            soil.execute(bucket);
        }
    }
}

control Dsm(inout headers_t hdr, inout metadata_t meta) {
    DsmRow() row0;
    DsmRow() row1;
    DsmRow() row2;
    DirectCounter<bit<32>>(CounterType_t.PACKETS) matched;
    bit<1> counting;

    action monitor() {
        meta.monitored = 1;
        matched.count();
    }
    action skip() {
        meta.to_hashpipe = meta.countable;
        meta.reported_bf = hdr.shim.path_bf;
        matched.count();
    }
    table rules {
        key = {
            hdr.ipv4.src_ip   : exact;
            hdr.ipv4.dst_ip   : exact;
            hdr.l4.src_port   : exact;
            hdr.l4.dst_port   : exact;
            hdr.ipv4.protocol : exact;
            hdr.shim.path_bf  : exact;
        }
        actions = { monitor; skip; }
        default_action = skip;
        counters = matched;
        size = DSM_RULES;
    }

    apply {
        counting = 0;
        if (meta.monitor == 1 && meta.from_host == 0 && meta.flow_valid == 1) {
            rules.apply();
            counting = hdr.shim.counted;
        }
        // The packet's own parity, never this switch's clock, chooses the instance.
        row0.apply(hdr, counting, meta.monitored, meta.ports,
                   hdr.shim.parity ++ meta.flow_hash[9:0]);
        row1.apply(hdr, counting, meta.monitored, meta.ports,
                   hdr.shim.parity ++ meta.flow_hash[19:10]);
        row2.apply(hdr, counting, meta.monitored, meta.ports,
                   hdr.shim.parity ++ meta.flow_hash[29:20]);
    }
}
