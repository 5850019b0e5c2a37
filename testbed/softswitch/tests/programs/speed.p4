// Speed: 15 tables and 30 register accesses per packet.
#include "common.p4inc"

struct headers { ethernet_t eth; ipv4_t ip; udp_t udp; }
struct metadata { bit<32> index; bit<104> flow; bit<32> acc; }

parser P(packet_in pkt, out headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    state start { pkt.extract(hdr.eth); transition select(hdr.eth.type) { 0x0800: ip; default: accept; } }
    state ip { pkt.extract(hdr.ip); transition select(hdr.ip.proto) { 17: udp; default: accept; } }
    state udp { pkt.extract(hdr.udp); transition accept; }
}
control V(inout headers hdr, inout metadata meta) {
    apply {
        verify_checksum(hdr.ip.isValid(), { hdr.ip.version, hdr.ip.ihl, hdr.ip.tos, hdr.ip.len,
            hdr.ip.id, hdr.ip.flags, hdr.ip.frag, hdr.ip.ttl, hdr.ip.proto, hdr.ip.src,
            hdr.ip.dst }, hdr.ip.csum, HashAlgorithm.csum16);
    }
}
control I(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    register<bit<104>>(4096) flows;
    action forward(bit<9> port) { sm.egress_spec = port; hdr.ip.ttl = hdr.ip.ttl - 1; }
    action add(bit<32> v) { meta.acc = meta.acc + v; }
    action drop() { mark_to_drop(sm); }
    table routes { key = { hdr.ip.dst : lpm; } actions = { forward; drop; } default_action = drop(); }
    table acl { key = { hdr.ip.src : ternary; hdr.ip.dst : ternary; hdr.udp.dport : range; } actions = { add; drop; NoAction; } default_action = NoAction(); }
    register<bit<32>>(4096) r0;
    register<bit<32>>(4096) r1;
    register<bit<32>>(4096) r2;
    register<bit<32>>(4096) r3;
    register<bit<32>>(4096) r4;
    register<bit<32>>(4096) r5;
    register<bit<32>>(4096) r6;
    register<bit<32>>(4096) r7;
    register<bit<32>>(4096) r8;
    register<bit<32>>(4096) r9;
    register<bit<32>>(4096) r10;
    register<bit<32>>(4096) r11;
    register<bit<32>>(4096) r12;
    register<bit<32>>(4096) r13;
    table t0 { key = { hdr.ip.src : exact; hdr.ip.proto : exact; } actions = { add; NoAction; } default_action = NoAction(); size = 1024; }
    table t1 { key = { hdr.ip.dst : exact; hdr.ip.proto : exact; } actions = { add; NoAction; } default_action = NoAction(); size = 1024; }
    table t2 { key = { meta.index : exact; hdr.ip.proto : exact; } actions = { add; NoAction; } default_action = NoAction(); size = 1024; }
    table t3 { key = { hdr.udp.sport : exact; hdr.ip.proto : exact; } actions = { add; NoAction; } default_action = NoAction(); size = 1024; }
    table t4 { key = { hdr.ip.src : exact; hdr.ip.proto : exact; } actions = { add; NoAction; } default_action = NoAction(); size = 1024; }
    table t5 { key = { hdr.ip.dst : exact; hdr.ip.proto : exact; } actions = { add; NoAction; } default_action = NoAction(); size = 1024; }
    table t6 { key = { meta.index : exact; hdr.ip.proto : exact; } actions = { add; NoAction; } default_action = NoAction(); size = 1024; }
    table t7 { key = { hdr.udp.sport : exact; hdr.ip.proto : exact; } actions = { add; NoAction; } default_action = NoAction(); size = 1024; }
    table t8 { key = { hdr.ip.src : exact; hdr.ip.proto : exact; } actions = { add; NoAction; } default_action = NoAction(); size = 1024; }
    table t9 { key = { hdr.ip.dst : exact; hdr.ip.proto : exact; } actions = { add; NoAction; } default_action = NoAction(); size = 1024; }
    table t10 { key = { meta.index : exact; hdr.ip.proto : exact; } actions = { add; NoAction; } default_action = NoAction(); size = 1024; }
    table t11 { key = { hdr.udp.sport : exact; hdr.ip.proto : exact; } actions = { add; NoAction; } default_action = NoAction(); size = 1024; }
    table last_t { actions = { add; NoAction; } default_action = NoAction(); }
    apply {
        bit<32> x;
        bit<104> old;
        meta.flow = hdr.ip.src ++ hdr.ip.dst ++ hdr.udp.sport ++ hdr.udp.dport ++ hdr.ip.proto;
        hash(meta.index, HashAlgorithm.crc32, 32w0, { hdr.ip.src, hdr.ip.dst, hdr.udp.sport, hdr.udp.dport, hdr.ip.proto }, 32w4096);
        acl.apply();
        routes.apply();
        flows.read(old, meta.index);
        if (old != meta.flow) { meta.acc = meta.acc + 1; }
        flows.write(meta.index, meta.flow);
        r0.read(x, meta.index);
        x = x + meta.acc;
        r0.write(meta.index, x);
        t0.apply();
        r1.read(x, meta.index);
        x = x + meta.acc;
        r1.write(meta.index, x);
        t1.apply();
        r2.read(x, meta.index);
        x = x + meta.acc;
        r2.write(meta.index, x);
        t2.apply();
        r3.read(x, meta.index);
        x = x + meta.acc;
        r3.write(meta.index, x);
        t3.apply();
        r4.read(x, meta.index);
        x = x + meta.acc;
        r4.write(meta.index, x);
        t4.apply();
        r5.read(x, meta.index);
        x = x + meta.acc;
        r5.write(meta.index, x);
        t5.apply();
        r6.read(x, meta.index);
        x = x + meta.acc;
        r6.write(meta.index, x);
        t6.apply();
        r7.read(x, meta.index);
        x = x + meta.acc;
        r7.write(meta.index, x);
        t7.apply();
        r8.read(x, meta.index);
        x = x + meta.acc;
        r8.write(meta.index, x);
        t8.apply();
        r9.read(x, meta.index);
        x = x + meta.acc;
        r9.write(meta.index, x);
        t9.apply();
        r10.read(x, meta.index);
        x = x + meta.acc;
        r10.write(meta.index, x);
        t10.apply();
        r11.read(x, meta.index);
        x = x + meta.acc;
        r11.write(meta.index, x);
        t11.apply();
        r12.read(x, meta.index);
        x = x + meta.acc;
        r12.write(meta.index, x);
        r13.read(x, meta.index);
        x = x + meta.acc;
        r13.write(meta.index, x);
        last_t.apply();
    }
}
control E(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) { apply { hdr.ip.id = meta.acc[15:0]; } }
control C(inout headers hdr, inout metadata meta) {
    apply {
        update_checksum(hdr.ip.isValid(), { hdr.ip.version, hdr.ip.ihl, hdr.ip.tos, hdr.ip.len,
            hdr.ip.id, hdr.ip.flags, hdr.ip.frag, hdr.ip.ttl, hdr.ip.proto, hdr.ip.src,
            hdr.ip.dst }, hdr.ip.csum, HashAlgorithm.csum16);
    }
}
control D(packet_out pkt, in headers hdr) { apply { pkt.emit(hdr.eth); pkt.emit(hdr.ip); pkt.emit(hdr.udp); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
