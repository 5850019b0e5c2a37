// What TNA carries beside the packet.

#define ICMP_WINDOW_SHIFT_NS 27          // 2^27 ns, for v1model's 2^17 us: 97 messages a second

const PortId_t CPU_PORT = 64;

header bridge_h {                        // from ingress to egress, of packets that the USM may count
    bit<32> flow_hash;
    @padding bit<7> reserved;
    bit<1>  parity;                      // of this switch's epoch
}

struct headers_t {
    bridge_h   bridge;
    ethernet_h ethernet;
    shim_h     shim;
    ipv4_h     outer_ipv4;               // of a tunnel that ends here; never leaves
    ipv4_h     ipv4;
    l4_h       l4;
}

struct metadata_t {
    bit<1>    corrupt;                   // wrong IPv4 checksum
    bit<1>    monitor;                   // this switch hosts meters
    bit<1>    parity;                    // of this switch's epoch
    bit<1>    upper_tier;                // which window of the ECMP hash this tier uses
    path_bf_t mask;                      // this switch's bits of pathBF
    bit<1>    from_host;
    bit<1>    ended;                     // not to be routed
    bit<1>    flow_valid;                // TCP or UDP, not a later fragment
    bit<1>    countable;                 // flow_valid, and the packet cannot expire on its way
    bit<1>    monitored;                 // the DSM knows this flow on this segment
    bit<1>    to_hashpipe;
    bit<1>    carrying;                  // a flow from one stage of HashPipe to the next
    bit<32>   ports;                     // source, destination; 0 where there are none
    bit<32>   flow_hash;
    bit<16>   hashpipe_count;
    path_bf_t reported_bf;               // pathBF as it came, before this switch is encoded
    bit<1>    upward;
    bit<16>   flow_mix;                  // the upper half of flow_hash
    bit<16>   ecmp;
    bit<16>   rotated;
    bit<8>    ecmp_hash;
}
