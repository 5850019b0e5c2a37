// Another choice of uplinks than by the hash of a flow, and counters at the leaf that receives packets
// of what came by each spine (after SprayCheck, arXiv 2605.03702).
//
// The file of each choice has a control block that takes the place of `Routing`, with the same tables,
// and is compiled by its name.

#define WAYS 16384                       // counters of a leaf: leaves times spines

#if defined(ROUTING_flowlet)
#include <flowlet.p4>
#elif defined(ROUTING_adaptive)
#include <adaptive.p4>
#elif defined(ROUTING_spray)
#include <spray.p4>
#endif

control Arriving(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    counter(WAYS, CounterType.packets) ways;
    bit<32> cell;

    // The counters of a rack's packets begin at `first`, in the order of the spines.
    action begin(bit<32> first) {
        cell = first;
    }
    table racks {
        key = { hdr.ipv4.src_ip : lpm; }
        actions = { begin; NoAction; }
        default_action = NoAction;
        size = ROUTES;
    }
    action count(bit<32> spine) {
        ways.count(cell + spine);
    }
    table spines {
        key = { std.ingress_port : exact; }
        actions = { count; NoAction; }
        default_action = NoAction;
        size = MAX_PORTS;
    }

    apply {
        if (meta.from_host == 0 && meta.countable == 1) {
            if (racks.apply().hit) {
                spines.apply();
            }
        }
    }
}

control Leaving(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply { }
}
