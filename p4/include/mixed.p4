// The hash of a measurement's cells (`measurement.p4`), from which rows take disjoint bits. CRCs alone
// would collide in all rows together, because a CRC is linear: the multiplication mixes them.

control Mixed(in bit<128> id, out bit<64> mixed) {
    bit<16> crc16;
    bit<32> crc32;

    apply {
        hash(crc16, HashAlgorithm.crc16, 16w0, { id }, 32w0x10000);
        hash(crc32, HashAlgorithm.crc32, 32w0, { id }, 64w0x100000000);
        mixed = (16w0 ++ crc16 ++ crc32) * 0x9E3779B97F4A7C15;
    }
}
