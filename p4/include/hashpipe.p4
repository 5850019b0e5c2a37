// HashPipe (Sivaraman et al., SOSR 2017): three stages which keep the largest flows. The first
// always takes the packet's flow and pushes out what it finds; a later stage keeps the larger of
// what it holds and what is pushed to it. A packet that pushes nothing out adds up what all stages
// hold of its own flow. With TOFINO_CHOICES an entry holds the CRC32 of a flow ID, as on Tofino, in
// place of the ID.

#ifdef TOFINO_CHOICES
typedef bit<32> pipe_id_t;
#define PIPE_ID(meta) meta.flow_hash
#define PIPE_HASH(result, id) result = id
#else
typedef flow_id_t pipe_id_t;
#define PIPE_ID(meta) meta.flow_id
#define PIPE_HASH(result, id) hash(result, HashAlgorithm.crc32, 32w0, { id }, 64w0x100000000)
#endif

control HashPipeFirst(in pipe_id_t id, in bit<32> entry, out pipe_id_t carried,
                      out bit<32> carried_count, out bit<32> count, out bit<1> own) {
    register<pipe_id_t>(STAGE_ENTRIES) flow_id;
    register<bit<32>>(STAGE_ENTRIES) counts;

    apply {
        flow_id.read(carried, entry);
        counts.read(carried_count, entry);
        count = 1;
        own = 0;
        if (carried == id) {
            count = carried_count + 1;
            carried_count = 0;           // nothing is pushed out
            own = 1;
        }
        flow_id.write(entry, id);
        counts.write(entry, count);
    }
}

// With `own` what is carried is the packet's own flow, with no packets: the entry stays as it is.
control HashPipeLater(in bit<1> own, inout pipe_id_t carried, inout bit<32> carried_count,
                      in bit<32> entry, inout bit<32> count) {
    register<pipe_id_t>(STAGE_ENTRIES) flow_id;
    register<bit<32>>(STAGE_ENTRIES) counts;
    pipe_id_t held;
    bit<32> held_count;

    apply {
        flow_id.read(held, entry);
        counts.read(held_count, entry);
        if (held == carried) {
            counts.write(entry, held_count + carried_count);
            carried_count = 0;
            if (own == 1) {
                count = count + held_count;
            }
        } else if (held_count < carried_count) {
            flow_id.write(entry, carried);
            counts.write(entry, carried_count);
            carried = held;
            carried_count = held_count;  // 0 when the entry was empty
        }
    }
}

control HashPipe(inout metadata_t meta) {
    HashPipeFirst() stage0;
    HashPipeLater() stage1;
    HashPipeLater() stage2;
    pipe_id_t carried;
    bit<32> carried_count;
    bit<32> carried_hash;
    bit<1> own;

    apply {
        stage0.apply(PIPE_ID(meta), 27w0 ++ meta.flow_hash[4:0], carried, carried_count,
                     meta.hashpipe_count, own);
        if (own == 1 || carried_count != 0) {
            PIPE_HASH(carried_hash, carried);
            stage1.apply(own, carried, carried_count, 27w0 ++ carried_hash[9:5],
                         meta.hashpipe_count);
        }
        if (own == 1 || carried_count != 0) {
            PIPE_HASH(carried_hash, carried);
            stage2.apply(own, carried, carried_count, 27w0 ++ carried_hash[14:10],
                         meta.hashpipe_count);
        }
    }
}
