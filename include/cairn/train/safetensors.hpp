#pragma once
// safetensors, the file format in which weights are exchanged (github.com/huggingface/safetensors, "Format"):
//   8 bytes  length n of the header, little endian, at most 100 MB
//   n bytes  JSON {name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, …,
//            "__metadata__": {text: text}}, blanks behind it
//   data     tensors in row-major order, little endian; offsets count from here
// A file comes from anywhere: each length is checked against the file before it is believed, a name that is there
// twice is refused, and tensors that leave a hole or overlap, too.

#include <cairn/core/atomic_file.hpp>
#include <cairn/core/shape.hpp>
#include <cairn/state/state_format.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn {

/// A type of elements, as the format calls it.
struct safetensors_type {
    const char* name;
    std::size_t bytes;
};
inline constexpr std::array<safetensors_type, 15> safetensors_types{{{"F64", 8},
                                                                     {"F32", 4},
                                                                     {"F16", 2},
                                                                     {"BF16", 2},
                                                                     {"F8_E4M3", 1},
                                                                     {"F8_E5M2", 1},
                                                                     {"I64", 8},
                                                                     {"I32", 4},
                                                                     {"I16", 2},
                                                                     {"I8", 1},
                                                                     {"U64", 8},
                                                                     {"U32", 4},
                                                                     {"U16", 2},
                                                                     {"U8", 1},
                                                                     {"BOOL", 1}}};

/// A tensor of such a file.
struct safetensors_entry {
    std::string name, type;
    shape extents;
    std::uint64_t begin = 0, end = 0;  // of its bytes, from the first byte of the data on
};

/// What a file has: tensors in the order of their bytes.
struct safetensors_header {
    std::vector<safetensors_entry> tensors;
    std::map<std::string, std::string> metadata;
    std::uint64_t data_begin = 0;  // byte of the file
};

namespace detail {

inline constexpr std::uint64_t longest_safetensors_header = 100'000'000;

/// Bytes of an element of the type; throws on an unknown one.
inline std::size_t safetensors_element(const std::string& type) {
    const auto found = std::ranges::find_if(safetensors_types, [&](const auto& t) { return t.name == type; });
    require(found != safetensors_types.end(), "unknown dtype ", type.substr(0, 40));
    return found->bytes;
}

/// The JSON of a header. nlohmann-json keeps the last of two equal names and reads any depth: a callback refuses both
/// while they are read.
inline nlohmann::json parse_safetensors_json(std::string_view text) {
    std::vector<std::set<std::string>> names;  // of the objects that are open
    int elements = 0;                          // of the array that is open
    const auto look = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
        using events = nlohmann::json::parse_event_t;
        if (event == events::object_start) names.emplace_back();
        if (event == events::object_end) names.pop_back();
        if (event == events::key)
            require(names.back().insert(value.get<std::string>()).second, "the name ",
                    value.get<std::string>().substr(0, 100), " is there twice");
        if (event == events::array_start) elements = 0;
        require(depth <= 3 && (event != events::value || depth < 3 || ++elements <= 64),
                "nested or longer than a header is");
        return true;
    };
    try {
        return nlohmann::json::parse(text, look);
    } catch (const nlohmann::json::exception& e) {
        fail("no JSON: ", e.what());
    }
}

inline safetensors_entry safetensors_entry_of(const std::string& name, const nlohmann::json& from) {
    const auto is_array = [&](const char* key) { return from.contains(key) && from[key].is_array(); };
    require(from.is_object() && from.size() == 3 && from.contains("dtype") && from["dtype"].is_string() &&
                is_array("shape") && is_array("data_offsets") && from["data_offsets"].size() == 2,
            "not {dtype, shape, data_offsets: [begin, end]}");
    safetensors_entry e{name, from["dtype"].get<std::string>(), {}, 0, 0};
    const std::size_t each = safetensors_element(e.type);
    for (const nlohmann::json& extent : from["shape"]) {
        require(extent.is_number_unsigned() && extent.get<std::uint64_t>() < (std::uint64_t{1} << 48),
                "an extent is no number of elements");
        e.extents.push_back(extent.get<index_t>());
    }
    const std::uint64_t bytes = static_cast<std::uint64_t>(e.extents.size()) * each;  // a shape is of fewer than 2^59
    for (const nlohmann::json& offset : from["data_offsets"])
        require(offset.is_number_unsigned(), "an offset is no number");
    e.begin = from["data_offsets"][0].get<std::uint64_t>(), e.end = from["data_offsets"][1].get<std::uint64_t>();
    require(e.begin <= e.end && e.end - e.begin == bytes, "bytes ", e.begin, " to ", e.end, ", but ", e.type, ' ',
            e.extents, " has ", bytes);
    return e;
}

}  // namespace detail

/// Reads a header's JSON; `data_bytes`: of the file behind it. Throws naming file and tensor.
inline safetensors_header parse_safetensors(std::string_view json, std::uint64_t data_bytes, const std::string& file) {
    safetensors_header h;
    const nlohmann::json all = with_context(file, [&] { return detail::parse_safetensors_json(json); });
    require(all.is_object() && json.front() == '{', file, ": the header is no JSON object");
    for (const auto& [name, value] : all.items()) {
        if (name != "__metadata__") {
            h.tensors.push_back(with_context(concat(file, ": ", name.substr(0, 200)), [&name = name, &value = value] {
                return detail::safetensors_entry_of(name, value);
            }));
            continue;
        }
        require(value.is_object(), file, ": __metadata__ is no object");
        for (const auto& [key, text] : value.items()) {
            require(text.is_string(), file, ": __metadata__: ", key.substr(0, 100), " is no text");
            h.metadata[key] = text.get<std::string>();
        }
    }
    std::stable_sort(h.tensors.begin(), h.tensors.end(), [](const safetensors_entry& a, const safetensors_entry& b) {
        return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    std::uint64_t end = 0;
    for (const safetensors_entry& e : h.tensors) {
        require(e.begin == end, file, ": ", e.name, " begins at byte ", e.begin,
                " of the data, the one before ends at ", end, e.begin < end ? ": they overlap" : ": a hole");
        end = e.end;
    }
    require(end == data_bytes, file, ": ", data_bytes, " bytes of data, the header tells of ", end);
    return h;
}

/// A file of tensors.
class safetensors_file {
public:
    /// Throws where it is absent or not as the format says.
    explicit safetensors_file(const std::filesystem::path& path) : file_(path) {
        require(std::endian::native == std::endian::little, file_.name(), ": read on little-endian machines alone");
        std::uint64_t length = 0;
        file_.read(0, &length, sizeof length, "the header's length");
        require(length <= detail::longest_safetensors_header, file_.name(), ": a header of ", length,
                " bytes; at most ", detail::longest_safetensors_header, " are allowed");
        require(length > 0 && length <= file_.size() - sizeof length, file_.name(), ": truncated: a header of ", length,
                " bytes, the file has ", file_.size());
        std::string json(length, '\0');
        file_.read(sizeof length, json.data(), length, "the header");
        header_ = parse_safetensors(json, file_.size() - sizeof length - length, file_.name());
        header_.data_begin = sizeof length + length;
    }

    const safetensors_header& header() const { return header_; }
    const std::string& name() const { return file_.name(); }

    /// The bytes of one of its tensors.
    std::vector<std::byte> read(const safetensors_entry& e) const {
        std::vector<std::byte> bytes(e.end - e.begin);
        file_.read(header_.data_begin + e.begin, bytes.data(), bytes.size(), e.name);
        return bytes;
    }

private:
    detail::state_reader file_;
    safetensors_header header_;
};

/// Writes a file, which is there whole or not at all. `tensors`: begin and end do not count, the widest types come
/// first, so that all are aligned; bytes_of(tensor) gives the bytes of each as it is written.
template <class BytesOf>
void write_safetensors(const std::filesystem::path& path, std::vector<safetensors_entry> tensors,
                       const std::map<std::string, std::string>& metadata, BytesOf&& bytes_of) {
    require(std::endian::native == std::endian::little, path.string(), ": written on little-endian machines alone");
    std::stable_sort(tensors.begin(), tensors.end(), [](const safetensors_entry& a, const safetensors_entry& b) {
        return detail::safetensors_element(a.type) > detail::safetensors_element(b.type);
    });
    nlohmann::json all = nlohmann::json::object();
    if (!metadata.empty()) all["__metadata__"] = metadata;
    std::uint64_t end = 0;
    for (safetensors_entry& e : tensors) {
        e.begin = end;
        e.end = end += static_cast<std::uint64_t>(e.extents.size()) * detail::safetensors_element(e.type);
        require(!all.contains(e.name), path.string(), ": two tensors are called ", e.name);
        nlohmann::json extents = nlohmann::json::array();
        for (const index_t extent : e.extents) extents.push_back(extent);
        all[e.name] = {{"dtype", e.type}, {"shape", extents}, {"data_offsets", {e.begin, e.end}}};
    }
    std::string json = all.dump();
    json.append((8 - json.size() % 8) % 8, ' ');
    const std::uint64_t length = json.size();
    require(length <= detail::longest_safetensors_header, path.string(), ": too many tensors for a header of ",
            detail::longest_safetensors_header, " bytes");
    atomic_file<> file(path);
    file.write(&length, sizeof length);
    file.write(json.data(), json.size());
    for (const safetensors_entry& e : tensors) {
        const std::vector<std::byte> bytes = bytes_of(e);
        require(bytes.size() == e.end - e.begin, path.string(), ": ", e.name, " has ", bytes.size(),
                " bytes in place of ", e.end - e.begin);
        file.write(bytes.data(), bytes.size());
    }
    file.commit();
}

}  // namespace cairn
