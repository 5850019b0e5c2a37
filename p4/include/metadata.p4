// What v1model carries beside the packet, and why a packet ended.
#ifndef CANARY_METADATA
#define CANARY_METADATA

struct headers_t {
    ethernet_h ethernet;
    shim_h     shim;
    ipv4_h     ipv4;
    icmp_h     icmp;
    ipv4_h     inner_ipv4;
    l4_h       l4;
    icmp_h     echo;                     // an echo request that came in
}

// Why a packet ended here; the environment reads it as the upper byte of `verdict`.
const bit<8> CAUSE_NONE = 0;
const bit<8> CAUSE_FAULT = 1;            // a fault table dropped it
const bit<8> CAUSE_CORRUPT = 2;          // the previous link corrupted it
const bit<8> CAUSE_TTL = 3;
const bit<8> CAUSE_NO_ROUTE = 4;
const bit<8> CAUSE_MALFORMED = 5;
const bit<8> CAUSE_LOCAL = 6;            // addressed to the switch itself

struct metadata_t {
    bit<16>   verdict;                   // {cause:8, expired:1, 0:5, counted:1, parity:1}
    bit<1>    monitor;                   // this switch hosts meters
    bit<1>    parity;                    // of this switch's epoch
    bit<1>    upper_tier;                // which window of the ECMP hash this tier uses
    path_bf_t mask;                      // this switch's bits of pathBF
    bit<32>   own_ip;
    bit<1>    from_host;
    bit<1>    to_host;
    bit<1>    flow_valid;                // TCP or UDP, not a later fragment
    bit<1>    countable;                 // flow_valid, and the packet cannot expire on its way
    bit<1>    monitored;                 // the DSM knows this flow on this segment
    bit<1>    corrupted;
    bit<1>    expired;
    flow_id_t flow_id;
    bit<32>   flow_hash;
    bit<32>   hashpipe_count;
    bit<8>    ecmp_hash;
}

#define DROP(meta, hdr, std, cause) \
    meta.verdict = cause ++ meta.expired ++ 5w0 ++ hdr.shim.counted ++ hdr.shim.parity; \
    mark_to_drop(std)

#endif
