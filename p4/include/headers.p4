// Packet format: Ethernet | shim | IPv4 | [IPv4] | L4. Only fabric links carry the shim. Shared by
// every target, as the digest is.
#ifndef CANARY_HEADERS
#define CANARY_HEADERS

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_SHIM = 0x88B5;   // IEEE 802 local experimental

const bit<8> PROTOCOL_ICMP = 1;
const bit<8> PROTOCOL_IPIP = 4;
const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;

const bit<8> ICMP_ECHO_REPLY = 0;
const bit<8> ICMP_ECHO_REQUEST = 8;
const bit<8> ICMP_TIME_EXCEEDED = 11;

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
    bit<32> unused;                      // of an echo: its identifier and sequence number
}

header l4_h {                            // what TCP and UDP share, and what an ICMP error quotes
    bit<16> src_port;
    bit<16> dst_port;
    bit<32> rest;
}

// What the controller learns of a heavy hitter: the digest's layout.
struct heavy_hitter_t {
    bit<32>   src_ip;
    bit<32>   dst_ip;
    bit<16>   src_port;
    bit<16>   dst_port;
    bit<8>    protocol;
    path_bf_t path_bf;
}

#endif
