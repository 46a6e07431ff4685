#pragma once
// safetensors and lineage.json, for fuzzing (fuzz_formats.hpp).

#include "states/description.hpp"

#include <cairn/train/safetensors.hpp>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace cairn::test {

// A file of this JSON and so many bytes of data, counting from 0.
inline std::vector<std::uint8_t> safetensors_bytes(std::string_view json, std::size_t data) {
    const std::uint64_t length = json.size();
    std::vector<std::uint8_t> file(sizeof length + json.size() + data);
    std::memcpy(file.data(), &length, sizeof length);
    std::memcpy(file.data() + sizeof length, json.data(), json.size());
    for (std::size_t i = 0; i < data; ++i) file[sizeof length + json.size() + i] = static_cast<std::uint8_t>(i);
    return file;
}

inline std::vector<std::uint8_t> small_safetensors() {
    return safetensors_bytes(R"({"__metadata__":{"made by":"hand"},
        "b":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},"none":{"dtype":"BF16","shape":[0,7],"data_offsets":[32,32]},
        "a/x":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"c":{"dtype":"U8","shape":[3],"data_offsets":[32,35]}}   )",
                             35);
}

// Where the header's length is beyond the file, what is there is taken as the header.
inline void parse_fuzzed_safetensors(std::vector<std::uint8_t> bytes) {
    std::uint64_t length = 0;
    if (bytes.size() > sizeof length) {
        std::memcpy(&length, bytes.data(), sizeof length);
        if (length > bytes.size() - sizeof length) length = (bytes.size() - sizeof length) * 9 / 10 + 1;
        std::memcpy(bytes.data(), &length, sizeof length);
    }
    static const int memory = ::memfd_create("x.safetensors", MFD_CLOEXEC);
    require(memory >= 0 && ::ftruncate(memory, 0) == 0 &&
                ::pwrite(memory, bytes.data(), bytes.size(), 0) == std::ssize(bytes),
            "no file in memory: ", std::strerror(errno));
    with_context("x.safetensors", [&] {
        const safetensors_file file(concat("/proc/self/fd/", memory));
        std::uint64_t sum = 0;
        for (const safetensors_entry& e : file.header().tensors) sum += file.read(e).size();
        require(sum + file.header().data_begin == bytes.size(), "bytes that are in no tensor");
    });
}

inline std::vector<std::uint8_t> small_lineage() {
    const std::string text =
        R"({"epoch": 1.5, "time": 1795882353, "workload": "lenet", "best_by": "test_loss", "tags": ["a"],
        "parent": {"run": "/a", "version": "00000005-00000000000f", "how": "branch"}, "metrics": {"test_loss": 0.5},
        "settings": "name = 'x'\n[optimizer]\nlr = 0.05\nbetas = [0.9, 0.99]\n"})";
    return {text.begin(), text.end()};
}

// Damage is never an error, but says less.
inline void parse_fuzzed_lineage(const std::vector<std::uint8_t>& bytes) {
    const version_description d = parse_description({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    require(states::settings_of(d.settings).size() == 3 && d.how == "branch", "x.lineage says less");
}

}  // namespace cairn::test
