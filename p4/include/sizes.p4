// Sizes and constants shared by every target. d = 3 rows of w = 1024 buckets and a HashPipe of
// 3 stages x 32 entries are the paper's (Canary, section IV-A).
#ifndef CANARY_SIZES
#define CANARY_SIZES

#define ROW_BITS 10                      // log2(w)
#define ROW_BUCKETS 1024                 // w
#define METER_BUCKETS 2048               // two instances, one per epoch parity
#define STAGE_BITS 5                     // log2(entries of a HashPipe stage)
#define STAGE_ENTRIES 32

#define DSM_RULES 4096
#define USM_RULES 4096
#define HH_RULES 1024
#define ROUTES 1024
#define FAULTS 1024
#define MAX_PORTS 512

// Packets that may expire on their way (traceroutes, probes) are not witnesses of loss.
#define MIN_COUNTED_TTL 16

// 13 ICMP messages per 2^17 us: 99 a second, below 007's T_max = 100 (its section 4.1).
#define ICMP_WINDOW_SHIFT 17
#define ICMP_PER_WINDOW 13

#endif
