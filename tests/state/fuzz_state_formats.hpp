#pragma once
// Packs, manifests and what is kept for other hosts, for fuzzing (data/fuzz_formats.hpp). Checksums are set right
// before parsing, since otherwise they alone would refuse everything.

#include "messages.hpp"

#include <cairn/state/kept_part.hpp>
#include <cairn/state/pack_survey.hpp>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace cairn::test {

// A pack of one rank: a whole tensor, a column, a range of a box, a text.
inline std::vector<std::uint8_t> small_pack() {
    tensor<float> table = tensor<float>::filled({3, 4}, 2.5f), column = tensor<float>::filled({5, 1}, 1.0f),
                  rest = tensor<float>::filled({13}, 3.0f);
    std::string text = "plan";
    state_view view;
    view.add("table", table, {.where = {}, .share = {0, 2}, .alike = true});
    view.add("column", column, {.where = piece{{5, 6}, {0, 2}, {5, 1}, 0, 5}, .share = {}});
    view.add("columns", rest, {.where = piece{{5, 6}, {0, 3}, {5, 3}, 2, 13}, .share = {}});
    view.add("text", text);
    pack_layout layout({{5, {1, 2}}, 0, 1}, view);
    std::vector<std::uint8_t> image(layout.bytes());
    auto* const bytes = reinterpret_cast<std::byte*>(image.data());
    layout.fill(bytes);
    layout.seal(bytes);
    return image;
}

inline std::vector<std::uint8_t> small_manifest_text() {
    manifest m{{5, {1, 2}}, 2, {{"rank-0000.pack", 700, 3}}, {{"a b", element_type::float32, {3, 4}, 5}}, 6};
    m.tensors.push_back({"n", element_type::int64, {}, 7});
    const std::string text = to_text(m);
    return {text.begin(), text.end()};
}

// Reads the directory, the data, and what they cover.
inline void parse_fuzzed_pack(std::vector<std::uint8_t> bytes) {
    detail::pack_header h{};
    if (bytes.size() >= sizeof h) {
        std::memcpy(&h, bytes.data(), sizeof h);
        h.file_bytes = bytes.size();
        if (h.directory_bytes <= bytes.size() - sizeof h)
            h.directory_checksum = xxh3(bytes.data() + sizeof h, h.directory_bytes);
        h.header_checksum = xxh3(&h, sizeof h - 8);
        std::memcpy(bytes.data(), &h, sizeof h);
    }
    static const int memory = ::memfd_create("x.pack", MFD_CLOEXEC);
    require(memory >= 0 && ::ftruncate(memory, 0) == 0 &&
                ::pwrite(memory, bytes.data(), bytes.size(), 0) == std::ssize(bytes),
            "no file in memory: ", std::strerror(errno));
    const std::filesystem::path path = concat("/proc/self/fd/", memory);
    with_context("x.pack", [&] {
        const pack_directory d = read_pack_directory(path);
        std::map<std::string, std::vector<detail::piece_of_pack>> tensors;
        for (const packed_piece& p : d.pieces) {
            if (p.holder != d.id.version) continue;
            detail::digest_of(p, std::vector<std::byte>(p.bytes).data());
            tensors[p.name].push_back({&p, &p.name});
        }
        verify_pack(path);
        for (const auto& [name, pieces] : tensors)  // of one rank they need not cover it
            message_of([&, &of = pieces] { detail::require_covered("x.pack", of); });
    });
}

inline void parse_fuzzed_manifest(const std::vector<std::uint8_t>& bytes) {
    std::string text(bytes.begin(), bytes.end());
    const std::size_t end = text.rfind("checksum ");
    if (end != std::string::npos) {
        text.resize(end);
        text += "checksum " + detail::hexadecimal(xxh3(text.data(), text.size())) + '\n';
    }
    const manifest m = parse_manifest(text, "x.manifest");
    require(to_text(m) == text, "a manifest that is not written as it was read");
}

inline std::vector<std::uint8_t> small_kept_part(const redundancy& kind) {
    const kept_header header{kind, 1, {}, {300, 0, 170, 64}};
    std::vector<std::uint8_t> kept(detail::kept_header_bytes(4) + header.payload_bytes(), 7);
    detail::write_kept_header(header, std::as_writable_bytes(std::span(kept)));
    return kept;
}

// Reads it, and plans how it would rebuild what as many hosts as parities have lost.
inline void parse_fuzzed_kept_part(std::vector<std::uint8_t> bytes) {
    detail::stored_kept_header h{};
    if (bytes.size() >= sizeof h) {
        std::memcpy(&h, bytes.data(), sizeof h);
        const std::size_t header = detail::kept_header_bytes(static_cast<int>(h.ranks & 511));
        if (h.ranks < 512 && header <= bytes.size()) {
            h.payload_bytes = bytes.size() - header;
            h.payload_hash = xxh3(bytes.data() + header, h.payload_bytes);
            std::memcpy(bytes.data(), &h, sizeof h);
            const std::uint64_t hash = xxh3(bytes.data(), header - sizeof hash);
            std::memcpy(bytes.data() + header - sizeof hash, &hash, sizeof hash);
        }
    }
    const kept_part part = with_context("x.kept", [&] { return read_kept_part(std::as_bytes(std::span(bytes))); });
    if (part.header.kind.how != redundancy::parity) return;
    const detail::parity_layout layout = part.header.layout();
    const auto ranks = static_cast<std::size_t>(layout.n);
    detail::parts_left left{std::vector<bool>(ranks, true), std::vector<bool>(ranks, true)};
    for (std::size_t r = 0; r < part.header.kind.parities; ++r) left.data[r] = false;
    std::vector<std::byte> rebuilt(layout.place(layout.n - layout.m));
    detail::rebuilding_steps(layout, 0, left, {}, part.payload, rebuilt);
}

}  // namespace cairn::test
