// The Canary switch for TNA (Tofino 1). A profile is what is compiled in: `monitor` has all parts,
// `transit` none of them, and the report compiles what lies between to say what each costs.
// Conditions are one deep wherever they can be: a block of Tofino 1 is placed as a whole, before or
// after its neighbours, and only statements side by side share the stages.
//
//     -DDSM -DUSM -DHASHPIPE -DHEAVY_HITTER
#if defined(DSM) || defined(USM)
#define MONITOR
#endif

#include <core.p4>
#include <tna.p4>

#include "../include/sizes.p4"
#include "../include/headers.p4"
#include "include/metadata.p4"
#include "include/parser.p4"
#include "include/identity.p4"
#include "include/flow.p4"
#ifdef MONITOR
#include "include/meter.p4"
#endif
#ifdef DSM
#include "include/dsm.p4"
#endif
#ifdef HASHPIPE
#include "include/hashpipe.p4"
#endif
#ifdef HEAVY_HITTER
#include "include/heavy_hitter.p4"
#endif
#include "include/pathbf.p4"
#include "include/expiry.p4"
#include "include/routing.p4"
#ifdef USM
#include "include/usm.p4"
#endif

control CanaryIngress(inout headers_t hdr, inout metadata_t meta,
                      in ingress_intrinsic_metadata_t ig,
                      in ingress_intrinsic_metadata_from_parser_t from_parser,
                      inout ingress_intrinsic_metadata_for_deparser_t deparser,
                      inout ingress_intrinsic_metadata_for_tm_t tm) {
    Identity() identity;
    Flow() flow;
    Ecmp() ecmp;
#ifdef DSM
    Dsm() dsm;
#endif
#ifdef HASHPIPE
    HashPipe() hashpipe;
#endif
#ifdef HEAVY_HITTER
    HeavyHitter() heavy_hitter;
#endif
    PathBf() pathbf;
    Expiry() expiry;
    Routing() routing;

    apply {
        if (meta.corrupt == 1) {         // the previous link corrupted it
            deparser.drop_ctl = 1;
        } else {
            identity.apply(hdr, meta);
            flow.apply(hdr, meta);
            ecmp.apply(hdr, meta);
#ifdef DSM
            dsm.apply(hdr, meta);
#endif
#ifdef HASHPIPE
            hashpipe.apply(meta);
#endif
#ifdef HEAVY_HITTER
            if (meta.to_hashpipe == 1) {
                heavy_hitter.apply(meta, deparser);
            }
#endif
            pathbf.apply(hdr, meta);
            expiry.apply(hdr, meta, from_parser, deparser, tm);
            if (meta.ended == 0) {
                routing.apply(hdr, meta, deparser, tm);
            }
        }
    }
}

control CanaryEgress(inout headers_t hdr, inout metadata_t meta,
                     in egress_intrinsic_metadata_t eg,
                     in egress_intrinsic_metadata_from_parser_t from_parser,
                     inout egress_intrinsic_metadata_for_deparser_t deparser,
                     inout egress_intrinsic_metadata_for_output_port_t port) {
#ifdef USM
    Usm() usm;
#endif

    apply {
#ifdef USM
        usm.apply(hdr);
#endif
    }
}

Pipeline(CanaryIngressParser(), CanaryIngress(), CanaryIngressDeparser(), CanaryEgressParser(),
         CanaryEgress(), CanaryEgressDeparser()) pipe;

Switch(pipe) main;
