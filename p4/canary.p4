// The Canary switch for v1model: partial traffic monitoring with upstream and downstream meters,
// the path segment in each packet, and heavy hitters on demand.
#include <core.p4>
#include <v1model.p4>

#include "include/sizes.p4"
#include "include/headers.p4"
#include "include/metadata.p4"
#include "include/parser.p4"
#include "include/checksum.p4"
#include "include/identity.p4"
#include "include/fault.p4"
#include "include/tunnel.p4"
#include "include/flow.p4"
#include "include/dsm.p4"
#include "include/hashpipe.p4"
#include "include/heavy_hitter.p4"
#include "include/pathbf.p4"
#include "include/expiry.p4"
#include "include/routing.p4"
#include "include/usm.p4"
#ifdef MEASUREMENT
#include <measurement.p4>                // control blocks of a measurement: Arriving and Leaving
#endif

control CanaryIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    Identity() identity;
    Fault() fault;
    Tunnel() tunnel;
    Flow() flow;
    Dsm() dsm;
    HashPipe() hashpipe;
    HeavyHitter() heavy_hitter;
    PathBf() pathbf;
    Expiry() expiry;
    Routing() routing;
#ifdef MEASUREMENT
    Arriving() arriving;
#endif

    apply {
        if (std.checksum_error == 1) {
            DROP(meta, hdr, std, CAUSE_CORRUPT);
            exit;
        }
        if (std.parser_error != error.NoError || !hdr.ipv4.isValid() || hdr.ipv4.version != 4
                || hdr.ipv4.ihl < 5) {
            DROP(meta, hdr, std, CAUSE_MALFORMED);
            exit;
        }
        if (!hdr.shim.isValid()) {
            meta.from_host = 1;
            hdr.shim.setValid();
            hdr.shim = { 0, 0, 0, 0, hdr.ethernet.ether_type };
            hdr.ethernet.ether_type = ETHERTYPE_SHIM;
        }
        identity.apply(hdr, meta);
        fault.apply(hdr, meta, std, std.ingress_port);
        if (meta.verdict != 0) {
            exit;
        }
        tunnel.apply(hdr, meta);
        flow.apply(hdr, meta);
#ifdef MEASUREMENT
        arriving.apply(hdr, meta, std);
#endif
        if (meta.monitor == 1 && meta.from_host == 0 && meta.flow_valid == 1) {
            dsm.apply(hdr, meta);
            if (meta.monitored == 0 && meta.countable == 1) {
                hashpipe.apply(meta);
                heavy_hitter.apply(hdr, meta);
            }
        }
        pathbf.apply(hdr, meta);
        expiry.apply(hdr, meta, std);
        if (meta.verdict[15:8] != CAUSE_NONE) {
            exit;
        }
        // What a full queue drops after this was counted by the upstream, or was not.
        meta.verdict = meta.verdict | (14w0 ++ hdr.shim.counted ++ hdr.shim.parity);
        routing.apply(hdr, meta, std);
    }
}

control CanaryEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    Usm() usm;
    Fault() fault;
#ifdef MEASUREMENT
    Leaving() leaving;
#endif

    apply {
        if (meta.to_host == 1) {
            hdr.ethernet.ether_type = hdr.shim.ether_type;
            hdr.shim.setInvalid();
        } else if (meta.monitor == 1) {
            usm.apply(hdr, meta);
        }
#ifdef MEASUREMENT
        leaving.apply(hdr, meta, std);
#endif
        fault.apply(hdr, meta, std, std.egress_port);
    }
}

V1Switch(CanaryParser(), VerifyChecksums(), CanaryIngress(), CanaryEgress(), ComputeChecksums(),
         CanaryDeparser()) main;
