/* SPDX-License-Identifier: Apache-2.0 */
/* What log_msg writes: text, and numbers in decimal whatever their size. */

static SS_UNUSED char *ss_say_text(char *at, const char *text, size_t n) {
    memcpy(at, text, n);
    return at + n;
}
static SS_UNUSED char *ss_say_number(char *at, u128 value) {
    char digits[39], *first = digits + sizeof digits;
    do *--first = (char)('0' + (int)(value % 10));
    while (value /= 10);
    return ss_say_text(at, first, (size_t)(digits + sizeof digits - first));
}
static SS_UNUSED char *ss_say_signed(char *at, i128 value) {
    if (value < 0) *at++ = '-';
    return ss_say_number(at, value < 0 ? -(u128)value : (u128)value);
}
/* A number of n bytes in network order; sign: its bits if the first of them is its sign, else 0. */
static SS_UNUSED char *ss_say_bytes(char *at, const uint8_t *bytes, uint32_t n, uint32_t sign) {
    uint8_t left[n + 1];
    char digits[3 * n + 9], *end = digits + sizeof digits, *first = end;
    memcpy(left, bytes, n);
    if (sign && bytes[0] >> (sign - 1) % 8 & 1) {
        unsigned carry = 1;
        *at++ = '-';
        for (uint32_t i = n; i-- > 0; carry >>= 8) left[i] = (uint8_t)(carry += (uint8_t)~left[i]);
        left[0] &= (uint8_t)(0xFF >> (7 - (sign - 1) % 8));
    }
    for (uint32_t from = 0; from < n;) { /* nine digits at a time */
        uint64_t rest = 0;
        for (uint32_t i = from; i < n; i++) {
            rest = rest << 8 | left[i];
            left[i] = (uint8_t)(rest / 1000000000);
            rest %= 1000000000;
        }
        while (from < n && !left[from]) from++;
        for (int i = 0; i < 9 && (from < n || rest || first == end); i++, rest /= 10)
            *--first = (char)('0' + rest % 10);
    }
    return ss_say_text(at, first, (size_t)(end - first));
}
