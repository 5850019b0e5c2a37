// HashPipe (Sivaraman et al., SOSR 2017): three stages which keep the largest flows. The first
// always takes the packet's flow and pushes out what it finds; a later stage keeps the larger of
// what it holds and what is pushed to it. A packet that pushes nothing out adds up what all stages
// hold of its own flow. An entry holds the CRC32 of a flow ID in place of the ID:
// a 104-bit ID would be four arrays, and the decision whether to replace it needs all of them and
// the count at once. A later stage has its counts twice, because one array hands out one word.

struct entry_t {
    bit<32> flow;
    bit<32> count;
}

control HashPipeFirst(in bit<1> entering, in bit<32> id, in bit<5> entry, inout bit<1> carrying,
                      out bit<32> carried, out bit<32> carried_count, out bit<32> count,
                      out bit<1> own) {
    Register<bit<32>, bit<5>>(STAGE_ENTRIES, 0) flow;
    Register<bit<32>, bit<5>>(STAGE_ENTRIES, 0) counts;

    RegisterAction<bit<32>, bit<5>, bit<32>>(flow) replace = {
        void apply(inout bit<32> value, out bit<32> before) {
            before = value;
            value = id;
        }
    };
    RegisterAction<bit<32>, bit<5>, bit<32>>(counts) count_one = {
        void apply(inout bit<32> value, out bit<32> after) {
            value = value + 1;
            after = value;
        }
    };
    RegisterAction<bit<32>, bit<5>, bit<32>>(counts) begin = {
        void apply(inout bit<32> value, out bit<32> before) {
            before = value;
            value = 1;
        }
    };
    action count_in_place() {
        count = count_one.execute(entry);
        carried_count = 0;
        carrying = 1;
        own = 1;
    }
    action push_out() {
        carried_count = begin.execute(entry);
        count = 1;
    }

    apply {
        own = 0;
        if (entering == 1) {
            carried = replace.execute(entry);
        }
        if (entering == 1 && carried == id) {
            count_in_place();
        } else if (entering == 1) {
            push_out();
        }
        if (entering == 1 && carried != id && carried != 0) {
            carrying = 1;
        }
    }
}

// With `own` what is carried is the packet's own flow, with no packets: the entry stays as it is.
control HashPipeLater(in bit<1> own, inout bit<1> carrying, inout bit<32> carried,
                      inout bit<32> carried_count, in bit<5> entry, out bit<32> count) {
    Register<entry_t, bit<5>>(STAGE_ENTRIES, {0, 0}) held;
    Register<bit<32>, bit<5>>(STAGE_ENTRIES, 0) counts;
    bit<32> found;
    bit<32> evicted;

    RegisterAction<entry_t, bit<5>, bit<32>>(held) keep_larger = {
        void apply(inout entry_t value, out bit<32> before) {
            before = value.flow;
            if (value.flow == carried) {
                value.count = value.count + carried_count;
            } else if (value.count < carried_count) {
                value.flow = carried;
                value.count = carried_count;
            }
        }
    };
    RegisterAction<bit<32>, bit<5>, bit<32>>(counts) add = {
        void apply(inout bit<32> value, out bit<32> after) {
            value = value + carried_count;
            after = value;
        }
    };
    RegisterAction<bit<32>, bit<5>, bit<32>>(counts) keep_larger_count = {
        void apply(inout bit<32> value, out bit<32> before) {
            before = 0;
            if (value < carried_count) {
                before = value;
                value = carried_count;
            }
        }
    };
    action join() {
        count = add.execute(entry);
        carrying = own;
    }

    apply {
        count = 0;
        if (carrying == 1) {
            found = keep_larger.execute(entry);
        }
        if (carrying == 1 && found == carried) {
            join();
        } else if (carrying == 1) {
            evicted = keep_larger_count.execute(entry);
        }
        if (carrying == 1 && evicted != 0) {
            carried = found;
            carried_count = evicted;
        } else if (found == 0) {         // the entry was empty
            carrying = 0;
        }
    }
}

control HashPipe(inout metadata_t meta) {
    HashPipeFirst() stage0;
    HashPipeLater() stage1;
    HashPipeLater() stage2;
    bit<32> carried;
    bit<32> carried_count;
    bit<32> count;
    bit<32> count1;
    bit<32> count2;
    bit<1> own;

    apply {
        stage0.apply(meta.to_hashpipe, meta.flow_hash, meta.flow_hash[4:0], meta.carrying, carried,
                     carried_count, count, own);
        stage1.apply(own, meta.carrying, carried, carried_count, carried[9:5], count1);
        stage2.apply(own, meta.carrying, carried, carried_count, carried[14:10], count2);
        if (own == 1) {
            count = count + count1;
        }
        if (own == 1) {
            count = count + count2;
        }
        if (count[31:16] != 0) {
            meta.hashpipe_count = 0xFFFF;
        } else {
            meta.hashpipe_count = count[15:0];
        }
    }
}
