// The upstream meter: counts what is about to leave of the selected flows, and marks it with this
// switch's epoch parity (Canary, section III-C, algorithm 2 and section III-G).

control UsmRow(in metadata_t meta, in bit<32> bucket) {
    register<bit<1>>(METER_BUCKETS) dirty;
    register<flow_id_t>(METER_BUCKETS) flow_id;
    register<bit<32>>(METER_BUCKETS) count;
    bit<32> n;
    flow_id_t owner;

    apply {
        count.read(n, bucket);
        flow_id.read(owner, bucket);
        if (n == 0) {
            flow_id.write(bucket, meta.flow_id);
        } else if (owner != meta.flow_id) {
            dirty.write(bucket, 1);
        }
        count.write(bucket, n + 1);
    }
}

control Usm(inout headers_t hdr, inout metadata_t meta) {
    UsmRow() row0;
    UsmRow() row1;
    UsmRow() row2;
    direct_counter(CounterType.packets) matched;

    action monitor() {
        hdr.shim.counted = 1;
        hdr.shim.parity = meta.parity;
        matched.count();
    }
    action skip() {
        matched.count();
    }
    table rules {
        key = {
            meta.flow_id : exact;
        }
        actions = { monitor; skip; }
        default_action = skip;
        counters = matched;
        size = USM_RULES;
    }

    apply {
        hdr.shim.counted = 0;
        hdr.shim.parity = 0;
        if (meta.countable == 1) {
            rules.apply();
        }
        if (hdr.shim.counted == 1) {
            row0.apply(meta, 21w0 ++ meta.parity ++ meta.flow_hash[9:0]);
            row1.apply(meta, 21w0 ++ meta.parity ++ meta.flow_hash[19:10]);
            row2.apply(meta, 21w0 ++ meta.parity ++ meta.flow_hash[29:20]);
        }
    }
}
