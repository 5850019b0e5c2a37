// A meter row of 1,024 buckets and two parities, as arrays. A packet may touch an array once and only
// forward, so the count comes first: 0 says that the bucket is empty, and the arrays behind it take
// the flow or compare it. The whole flow ID is kept: a digest of it would spare one array a row, and
// cost collisions that no flag shows.

typedef bit<11> bucket_t;                // {parity, index in the row}

struct addresses_t {
    bit<32> src_ip;
    bit<32> dst_ip;
}

struct ports_and_path_t {
    bit<32>   ports;
    path_bf_t path_bf;
}

struct protocol_and_dirty_t {
    bit<8> protocol;
    bit<8> dirty;
}
