#pragma once
// Canonical Huffman codes of limited length. Lengths are optimal under the limit (package-merge: Larmore and
// Hirschberg, JACM 1990); codes follow from the lengths alone, in order of (length, symbol), so that only lengths
// travel.
// Bits fill bytes from the lowest bit, each code reversed, so that a decoder reads a symbol by one table look-up.
// A lone symbol has length 0: nothing is written for it.

#include <cairn/core/error.hpp>
#include <cairn/core/shape.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace cairn::huffman {

inline constexpr int limit = 12;  // bits; a decoding table of 4096 entries fits the first cache

using lengths = std::vector<std::uint8_t>;

/// The code length of each symbol, 0 where counts are 0. At most 2^limit symbols may occur.
inline lengths optimal_lengths(std::span<const std::uint64_t> counts) {
    std::vector<std::size_t> symbols;
    for (std::size_t s = 0; s < counts.size(); ++s)
        if (counts[s]) symbols.push_back(s);
    lengths result(counts.size(), 0);
    const std::size_t n = symbols.size();
    require(n <= std::size_t{1} << limit, "huffman: ", n, " symbols cannot have codes of ", limit, " bits");
    if (n < 2) return result;
    std::stable_sort(symbols.begin(), symbols.end(), [&](auto a, auto b) { return counts[a] < counts[b]; });

    // Level by level: the symbols merged with pairs of the level before, by weight. is_symbol remembers who is who.
    std::vector<std::vector<char>> is_symbol;
    std::vector<std::uint64_t> level;
    for (int depth = 0; depth < limit; ++depth) {
        std::vector<std::uint64_t> merged;
        std::vector<char> kind;
        std::size_t s = 0, p = 0;
        const std::size_t pairs = level.size() / 2;
        while (s < n || p < pairs) {
            const bool take_symbol = p == pairs || (s < n && counts[symbols[s]] <= level[2 * p] + level[2 * p + 1]);
            merged.push_back(take_symbol ? counts[symbols[s]] : level[2 * p] + level[2 * p + 1]);
            kind.push_back(take_symbol);
            ++(take_symbol ? s : p);
        }
        level = std::move(merged);
        is_symbol.push_back(std::move(kind));
    }
    // The first 2 n − 2 of the last level: a symbol's length is how often it is among them, opened up.
    std::size_t taken = 2 * n - 2;
    for (auto kind = is_symbol.rbegin(); kind != is_symbol.rend(); ++kind) {
        const auto singles =
            static_cast<std::size_t>(std::count(kind->begin(), kind->begin() + static_cast<std::ptrdiff_t>(taken), 1));
        for (std::size_t s = 0; s < singles; ++s) ++result[symbols[s]];
        taken = 2 * (taken - singles);
    }
    return result;
}

/// Whether every sequence of bits begins with exactly one code, or there is a single symbol or none.
inline bool complete(std::span<const std::uint8_t> lengths_of) {
    std::uint32_t used = 0;
    for (const std::uint8_t length : lengths_of) {
        if (length > limit) return false;
        used += length ? std::uint32_t{1} << (limit - length) : 0;
    }
    return used == 0 || used == std::uint32_t{1} << limit;
}

/// A code and its length; reversed, ready to be written.
struct code {
    std::uint16_t bits = 0;
    std::uint16_t length = 0;
};

inline std::vector<code> codes_of(std::span<const std::uint8_t> lengths_of) {
    std::vector<code> all(lengths_of.size());
    unsigned next = 0;
    for (int length = 1; length <= limit; ++length, next <<= 1)
        for (std::size_t s = 0; s < all.size(); ++s) {
            if (lengths_of[s] != length) continue;
            unsigned reversed = 0;
            for (int b = 0; b < length; ++b) reversed |= ((next >> b) & 1u) << (length - 1 - b);
            all[s] = {static_cast<std::uint16_t>(reversed), static_cast<std::uint16_t>(length)};
            ++next;
        }
    return all;
}

/// Writes codes one after another. Never writes behind the last byte that they need.
class writer {
public:
    explicit writer(std::byte* out) : out_(out) {}
    [[gnu::always_inline]] void put(code c) {
        bits_ |= std::uint64_t{c.bits} << held_;
        held_ += c.length;
        if (held_ >= 32) {
            const auto low = static_cast<std::uint32_t>(bits_);
            std::memcpy(out_, &low, 4);
            out_ += 4;
            bits_ >>= 32;
            held_ -= 32;
        }
    }
    /// Writes the codes of n symbols, nothing from `end` on.
    void put(const std::uint8_t* symbols, std::size_t n, std::span<const code> codes, const std::byte* end) {
        std::size_t i = 0;
        for (; i + 4 <= n && end - out_ >= 16; i += 4) {
            write_whole_bytes();  // leaves 7 bits, to which four codes fit
            const code a = codes[symbols[i]], b = codes[symbols[i + 1]], c = codes[symbols[i + 2]],
                       d = codes[symbols[i + 3]];
            const std::uint64_t low = a.bits | std::uint64_t{b.bits} << a.length,
                                high = c.bits | std::uint64_t{d.bits} << c.length;
            const int first = a.length + b.length;
            bits_ |= (low | high << first) << held_;
            held_ += first + c.length + d.length;
        }
        if (i > 0) write_whole_bytes();
        for (; i < n; ++i) put(codes[symbols[i]]);
    }
    /// Writes what is left, up to a whole byte, and returns the end.
    std::byte* finish() {
        for (; held_ > 0; held_ -= 8, bits_ >>= 8) *out_++ = static_cast<std::byte>(bits_);
        held_ = 0;
        return out_;
    }

private:
    void write_whole_bytes() {
        std::memcpy(out_, &bits_, 8);
        out_ += held_ / 8;
        bits_ >>= held_ & ~7;
        held_ &= 7;
    }

    std::byte* out_;
    std::uint64_t bits_ = 0;
    int held_ = 0;
};

namespace detail {

/// Sets the entries of every `limit` bits that begin with a code to make(its symbol, its length).
template <class Entry, class Make>
void fill_table(std::vector<Entry>& table, std::span<const std::uint8_t> lengths_of, Make&& make) {
    const std::vector<code> codes = codes_of(lengths_of);
    for (std::size_t s = 0; s < codes.size(); ++s)
        if (codes[s].length)
            for (std::size_t at = codes[s].bits; at < table.size(); at += std::size_t{1} << codes[s].length)
                table[at] = make(s, codes[s].length);
}

/// Bits of a stream: take(the next `limit` bits) returns how many of them it used.
struct bit_reader {
    const std::byte *in, *end;
    std::uint64_t bits = 0;
    int held = 0;

    explicit bit_reader(std::span<const std::byte> bytes) : in(bytes.data()), end(in + bytes.size()) {}
    bool has_eight_bytes() const { return end - in >= 8; }

    template <class Take>
    [[gnu::always_inline]] void next(Take&& take) {
        constexpr std::uint64_t mask = (1u << limit) - 1;
        const int used = take(bits & mask);
        bits >>= used;
        held -= used;
    }
    /// Four times; there are eight bytes.
    template <class Take>
    [[gnu::always_inline]] void four(Take&& take) {  // 56 bits or more are enough
        std::uint64_t more;
        std::memcpy(&more, in, 8);
        bits |= more << held;
        in += (63 - held) / 8;
        held |= 56;
        next(take), next(take), next(take), next(take);
    }
    /// False if there were too few bits.
    template <class Take>
    bool one(Take&& take) {
        for (; held <= 56 && in < end; held += 8) bits |= static_cast<std::uint64_t>(*in++) << held;
        next(take);
        return held >= 0;
    }
};

}  // namespace detail

/// Decodes symbols that codes_of made; lengths must be complete().
class decoder {
public:
    explicit decoder(std::span<const std::uint8_t> lengths_of, std::uint16_t lone_symbol)
        : table_(std::size_t{1} << limit, {lone_symbol, 0}) {
        detail::fill_table(table_, lengths_of, [](std::size_t s, auto length) {
            return entry{static_cast<std::uint16_t>(s), length};
        });
    }

    /// Reads `count` symbols from `bytes`. Returns the bits that they took, or −1 if there are too few.
    index_t decode(std::span<const std::byte> bytes, index_t count, std::uint16_t* symbols) const {
        detail::bit_reader read(bytes);
        index_t i = 0;
        const auto take = [&](std::uint64_t bits) {
            const entry e = table_[bits];
            symbols[i++] = e.symbol;
            return static_cast<int>(e.length);
        };
        while (i + 4 <= count && read.has_eight_bytes()) read.four(take);
        while (i < count)
            if (!read.one(take)) return -1;
        return static_cast<index_t>(read.in - bytes.data()) * 8 - read.held;
    }

private:
    struct entry {
        std::uint16_t symbol, length;
    };
    std::vector<entry> table_;
};

/// `count` symbols, which `bytes` hold, and room for them: decoding may write up to 4 bytes behind.
struct byte_stream {
    std::span<const std::byte> bytes{};
    index_t count = 0;
    std::uint8_t* symbols = nullptr;
};

/// Of symbols that are bytes: up to four at a time, where their codes together have at most `limit` bits.
class byte_decoder {
public:
    explicit byte_decoder(std::span<const std::uint8_t> lengths_of, std::uint8_t lone_symbol)
        : table_(std::size_t{1} << limit, {lone_symbol * 0x01010101u, 0, 4}) {
        std::vector<entry> one(table_.size());  // the first symbol alone
        detail::fill_table(one, lengths_of, [](std::size_t s, auto length) {
            return entry{static_cast<std::uint32_t>(s), static_cast<std::uint8_t>(length), 1};
        });
        for (std::size_t at = 0; at < table_.size(); ++at) {
            entry all{0, 0, 0};
            while (all.count < 4) {
                const entry& next = one[at >> all.bits];
                if (next.count == 0 || all.bits + next.bits > limit) break;
                all = {all.symbols | next.symbols << (8 * all.count), static_cast<std::uint8_t>(all.bits + next.bits),
                       static_cast<std::uint8_t>(all.count + 1)};
            }
            if (all.count > 0) table_[at] = all;
        }
    }

    /// Two streams at once, in half the time: the next symbol of one waits for the one before, not for the other's.
    void decode(const byte_stream& a, const byte_stream& b) const {
        cursor first(*this, a), second(*this, b);
        while (first.is_long() && second.is_long()) first.four(), second.four();
        first.finish();
        second.finish();
    }

private:
    struct entry {
        std::uint32_t symbols;
        std::uint8_t bits, count;
    };
    class cursor {
    public:
        cursor(const byte_decoder& d, const byte_stream& s)
            : table_(d.table_.data()), read_(s.bytes), at_(s.symbols), end_(s.symbols + s.count) {}
        bool is_long() const { return end_ - at_ >= 16 && read_.has_eight_bytes(); }
        [[gnu::always_inline]] void four() {
            read_.four([this](std::uint64_t bits) { return take(bits); });
        }
        void finish() {
            while (is_long()) four();
            while (at_ < end_) read_.one([this](std::uint64_t bits) { return take(bits); });
        }

    private:
        [[gnu::always_inline]] int take(std::uint64_t bits) {
            const entry e = table_[bits];
            std::memcpy(at_, &e.symbols, 4);
            at_ += e.count;
            return e.bits;
        }
        const entry* table_;
        detail::bit_reader read_;
        std::uint8_t *at_, *end_;
    };
    std::vector<entry> table_;
};

}  // namespace cairn::huffman
