// Packet format: Ethernet | shim | IPv4 | [IPv4] | L4. Only fabric links carry the shim.
#ifndef CANARY_HEADERS
#define CANARY_HEADERS

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_SHIM = 0x88B5;   // IEEE 802 local experimental

const bit<8> PROTOCOL_ICMP = 1;
const bit<8> PROTOCOL_IPIP = 4;
const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;

typedef bit<104> flow_id_t;              // source, destination, source port, destination port, protocol
typedef bit<32> path_bf_t;

header ethernet_h {
    bit<48> dst_mac;
    bit<48> src_mac;
    bit<16> ether_type;
}

header shim_h {
    path_bf_t path_bf;                   // Bloom filter of the switches since the last monitor switch
    bit<1>    counted;                   // the upstream counted this packet ...
    bit<1>    parity;                    // ... in its epoch of this parity
    bit<6>    reserved;
    bit<16>   ether_type;
}

header ipv4_h {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  tos;
    bit<16> total_length;
    bit<16> id;
    bit<3>  flags;
    bit<13> fragment;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src_ip;
    bit<32> dst_ip;
}

header icmp_h {
    bit<8>  type;
    bit<8>  code;
    bit<16> checksum;
    bit<32> unused;
}

header l4_h {                            // what TCP and UDP share, and what an ICMP error quotes
    bit<16> src_port;
    bit<16> dst_port;
    bit<32> rest;
}

struct headers_t {
    ethernet_h ethernet;
    shim_h     shim;
    ipv4_h     ipv4;
    icmp_h     icmp;
    ipv4_h     inner_ipv4;
    l4_h       l4;
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

struct heavy_hitter_t {
    bit<32>   src_ip;
    bit<32>   dst_ip;
    bit<16>   src_port;
    bit<16>   dst_port;
    bit<8>    protocol;
    path_bf_t path_bf;
}

#define DROP(meta, hdr, std, cause) \
    meta.verdict = cause ++ meta.expired ++ 5w0 ++ hdr.shim.counted ++ hdr.shim.parity; \
    mark_to_drop(std)

#endif
