// The upstream meter: counts what is about to leave of the selected flows, and marks it with this
// switch's epoch parity (Canary, section III-C, algorithm 2 and section III-G).

control UsmRow(in metadata_t meta, in bit<32> bucket) {
    register<bit<1>>(METER_BUCKETS) dirty;
    register<bit<52>>(METER_BUCKETS) flow_hi;
    register<bit<52>>(METER_BUCKETS) flow_lo;
    register<bit<32>>(METER_BUCKETS) count;
    bit<32> n;
    bit<52> owner_hi;
    bit<52> owner_lo;

    apply {
        count.read(n, bucket);
        flow_hi.read(owner_hi, bucket);
        flow_lo.read(owner_lo, bucket);
        if (n == 0) {
            flow_hi.write(bucket, meta.flow_id[103:52]);
            flow_lo.write(bucket, meta.flow_id[51:0]);
        } else if (owner_hi ++ owner_lo != meta.flow_id) {
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
