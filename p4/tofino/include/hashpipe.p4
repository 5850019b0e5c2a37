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
                      out bit<32> carried, out bit<32> carried_count, out bit<1> own) {
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
        carried_count = count_one.execute(entry);
        own = 1;
    }
    action push_out() {
        carried_count = begin.execute(entry);
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
        if (entering == 1 && carried != 0) {
            carrying = 1;
        }
    }
}

// With `own` what is carried is the packet's own flow, with what the stages before hold of it: the
// entry stays as it is, and what it holds of the flow is added to what is carried.
control HashPipeLater(in bit<1> own, inout bit<1> carrying, in bit<32> carried,
                      inout bit<32> carried_count, in bit<5> entry, out bit<32> found,
                      out bit<32> evicted) {
    Register<entry_t, bit<5>>(STAGE_ENTRIES, {0, 0}) held;
    Register<bit<32>, bit<5>>(STAGE_ENTRIES, 0) counts;

    RegisterAction<entry_t, bit<5>, bit<32>>(held) look = {
        void apply(inout entry_t value, out bit<32> flow) {
            flow = value.flow;
        }
    };
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
    RegisterAction<bit<32>, bit<5>, bit<32>>(counts) add_up = {
        void apply(inout bit<32> value, out bit<32> sum) {
            sum = value + carried_count;
        }
    };
    RegisterAction<bit<32>, bit<5>, bit<32>>(counts) add = {
        void apply(inout bit<32> value) {
            value = value + carried_count;
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
        add.execute(entry);
        carrying = 0;
    }

    apply {
        if (carrying == 1 && own == 1) {
            found = look.execute(entry);
        } else if (carrying == 1) {
            found = keep_larger.execute(entry);
        }
        if (carrying == 1 && own == 1 && found == carried) {
            carried_count = add_up.execute(entry);
        } else if (carrying == 1 && own == 0 && found == carried) {
            join();
        } else if (carrying == 1 && own == 0) {
            evicted = keep_larger_count.execute(entry);
        }
    }
}

control HashPipe(inout metadata_t meta) {
    HashPipeFirst() stage0;
    HashPipeLater() stage1;
    HashPipeLater() stage2;
    bit<32> carried;
    bit<32> carried_count;
    bit<32> found;
    bit<32> evicted;
    bit<1> own;

    apply {
        stage0.apply(meta.to_hashpipe, meta.flow_hash, meta.flow_hash[4:0], meta.carrying, carried,
                     carried_count, own);
        stage1.apply(own, meta.carrying, carried, carried_count, carried[9:5], found, evicted);
        if (meta.carrying == 1 && evicted != 0) {
            carried = found;
            carried_count = evicted;
        } else if (found == 0) {         // the entry was empty
            meta.carrying = 0;
        }
        // What the last stage pushes out is forgotten.
        stage2.apply(own, meta.carrying, carried, carried_count, carried[14:10], found, evicted);
        if (own == 1 && carried_count[31:16] != 0) {
            meta.hashpipe_count = 0xFFFF;
        } else if (own == 1) {
            meta.hashpipe_count = carried_count[15:0];
        } else {                         // the first packet since the flow was pushed out
            meta.hashpipe_count = 1;
        }
    }
}
