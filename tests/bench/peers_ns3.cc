/* SPDX-License-Identifier: Apache-2.0 */
/* The fabric, packets and losses of bench_peers.py in ns-3: plain IP forwarding with ECMP, no meters.
 *
 * Input: "switches hosts cables packets"; of each cable its ends (hosts follow the switches) and the
 * loss rate in either direction; of each packet when it is sent (ns), its hosts, flow and frame bytes.
 * Output: packets that arrived at switches, at hosts, and processor seconds of the simulation. */
#include <cstdio>
#include <ctime>
#include <vector>

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"

using namespace ns3;

struct packet {
    uint64_t time;
    uint32_t src, dst, flow, bytes;
};

static uint64_t hops, delivered;
static std::vector<packet> packets;
static std::vector<Ptr<Socket>> sockets;
static std::vector<Ipv4Address> address;
static size_t next_packet;

static void at_switch(Ptr<const Packet>) { hops++; }

static void at_host(Ptr<Socket> socket) {
    while (socket->Recv()) delivered++;
}

static void send_due() {
    const uint64_t now = Simulator::Now().GetNanoSeconds();
    for (; next_packet < packets.size() && packets[next_packet].time <= now; next_packet++) {
        const packet &one = packets[next_packet];
        sockets[one.src]->SendTo(Create<Packet>(one.bytes - 42), 0,
                                 InetSocketAddress(address[one.dst], 9));
    }
    if (next_packet < packets.size())
        Simulator::Schedule(NanoSeconds(packets[next_packet].time - now), &send_due);
}

int main(int argc, char **argv) {
    uint32_t switches, hosts, cables, n;
    FILE *in = argc > 1 ? fopen(argv[1], "r") : nullptr;
    if (!in || fscanf(in, "%u %u %u %u", &switches, &hosts, &cables, &n) != 4) return 2;
    Config::SetDefault("ns3::Ipv4GlobalRouting::RandomEcmpRouting", BooleanValue(true));
    NodeContainer nodes;
    nodes.Create(switches + hosts);
    InternetStackHelper().Install(nodes);
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue("1000Gbps"));
    link.SetChannelAttribute("Delay", StringValue("5us"));
    Ipv4AddressHelper plan("10.0.0.0", "255.255.255.252");
    address.resize(hosts);
    for (uint32_t i = 0; i < cables; i++) {
        uint32_t end[2];
        double loss[2];
        if (fscanf(in, "%u %u %lf %lf", end, end + 1, loss, loss + 1) != 4) return 2;
        NetDeviceContainer two = link.Install(nodes.Get(end[0]), nodes.Get(end[1]));
        Ipv4InterfaceContainer given = plan.Assign(two);
        plan.NewNetwork();
        for (uint32_t to = 0; to < 2; to++) { /* loss[0] is from the first end to the second */
            Ptr<NetDevice> device = two.Get(1 - to);
            if (end[1 - to] >= switches)
                address[end[1 - to] - switches] = given.GetAddress(1 - to);
            else
                device->TraceConnectWithoutContext("MacRx", MakeCallback(&at_switch));
            if (loss[to] > 0) {
                Ptr<RateErrorModel> model = CreateObject<RateErrorModel>();
                model->SetUnit(RateErrorModel::ERROR_UNIT_PACKET);
                model->SetRate(loss[to]);
                device->SetAttribute("ReceiveErrorModel", PointerValue(model));
            }
        }
    }
    packets.resize(n);
    for (packet &one : packets)
        if (fscanf(in, "%lu %u %u %u %u", &one.time, &one.src, &one.dst, &one.flow, &one.bytes) != 5)
            return 2;
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    for (uint32_t h = 0; h < hosts; h++) {
        Ptr<Socket> socket =
            Socket::CreateSocket(nodes.Get(switches + h), UdpSocketFactory::GetTypeId());
        socket->Bind(InetSocketAddress(Ipv4Address::GetAny(), 9));
        socket->SetRecvCallback(MakeCallback(&at_host));
        sockets.push_back(socket);
    }
    if (n) Simulator::Schedule(NanoSeconds(packets[0].time), &send_due);
    const clock_t start = clock();
    Simulator::Run();
    printf("%lu %lu %.3f\n", hops, delivered, (double)(clock() - start) / CLOCKS_PER_SEC);
    Simulator::Destroy();
    return 0;
}
