#pragma once
// Versions to and from safetensors (train/safetensors.hpp).
//   export         parameters and statistics by their paths in the network; statistics as the mean over ranks
//   export --all   every tensor, number and text of the state, by its name there
//   import         version 0 of a new run, for train --init; of a file that --all wrote, the very state
// What of a file are statistics, or texts, stands in its metadata. Weights in half precision become float32, exactly.

#include "states/tensors.hpp"

#include <cairn/core/float16.hpp>
#include <cairn/state/direct_file.hpp>
#include <cairn/state/staging.hpp>
#include <cairn/train/run_directory.hpp>
#include <cairn/train/safetensors.hpp>
#include <cairn/train/version_description.hpp>

#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace cairn::states {

/// The types of both formats that are the same.
inline constexpr std::array<std::pair<element_type, const char*>, 9> exchanged_types{{
    {element_type::float32, "F32"},
    {element_type::float64, "F64"},
    {element_type::bfloat16, "BF16"},
    {element_type::int32, "I32"},
    {element_type::int64, "I64"},
    {element_type::uint8, "U8"},
    {element_type::uint32, "U32"},
    {element_type::uint64, "U64"},
    {element_type::text, "U8"},
}};

/// Writes parameters and statistics of a version, or all that it has, to `file`.
inline void export_version(const located_version& from, const std::filesystem::path& file, bool all) {
    const version_tensors version(from.version.directory);
    std::vector<safetensors_entry> entries;
    std::map<std::string, const manifest::tensor*> tensors;
    nlohmann::json statistics = nlohmann::json::array(), texts = nlohmann::json::array();
    for (const manifest::tensor& t : version.all().tensors) {
        const bool is_statistic = t.name.starts_with("buffers/");
        if (!all && !is_statistic && !t.name.starts_with("model/")) continue;
        const std::string name = all ? t.name : t.name.substr(t.name.find('/') + 1);
        safetensors_entry e{name, exchanged_types[static_cast<std::size_t>(t.type)].second, t.extents, 0, 0};
        if (!all && is_statistic) {
            e.extents = version_tensors::row_of(t.extents);
            statistics.push_back(name);
        }
        if (t.type == element_type::text) {
            e.extents = {static_cast<index_t>(version.read(t).size())};
            texts.push_back(name);
        }
        require(tensors.try_emplace(name, &t).second, from.text(), ": a parameter and a statistic are both called ",
                name);
        entries.push_back(std::move(e));
    }
    require(!entries.empty(), from.text(), ": has no parameters; --all exports what it has");
    std::map<std::string, std::string> metadata{{"cairn.version", from.version.name}};
    if (all)
        metadata["cairn.state"] = "all", metadata["cairn.texts"] = texts.dump();
    else
        metadata["cairn.statistics"] = statistics.dump();
    write_safetensors(file, entries, metadata, [&](const safetensors_entry& e) {
        const manifest::tensor& t = *tensors.at(e.name);
        return version.read(t, !all && t.name.starts_with("buffers/"));
    });
}

/// Tensors in memory that will be a version.
class imported_tensors {
public:
    /// Reads `file`. Throws where a tensor has a type that a state cannot have.
    explicit imported_tensors(const safetensors_file& file) {
        const auto names = [&](const char* key) {
            std::set<std::string> all;
            const auto found = file.header().metadata.find(key);
            if (found == file.header().metadata.end()) return all;
            const nlohmann::json list = nlohmann::json::parse(found->second, nullptr, false);
            require(list.is_array(), file.name(), ": __metadata__: ", key, " is no list of names");
            for (const nlohmann::json& name : list)
                if (name.is_string()) all.insert(name.get<std::string>());
            return all;
        };
        const bool all = file.header().metadata.contains("cairn.state");
        const std::set<std::string> statistics = names("cairn.statistics"), texts = names("cairn.texts");
        for (const safetensors_entry& e : file.header().tensors) {
            std::vector<std::byte> bytes = file.read(e);
            if (texts.contains(e.name) && e.type == "U8") {
                texts_.push_back(
                    std::make_unique<std::string>(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
                view_.add(e.name, *texts_.back());
                continue;
            }
            const bool is_statistic = statistics.contains(e.name);
            const std::string name = all ? e.name : (is_statistic ? "buffers/" : "model/") + e.name;
            piece_info info;
            if (is_statistic) info.where = piece::whole(e.extents).in_row(0, 1);
            if (!all && e.type == "BF16")
                add_widened<bfloat16>(name, e.extents, bytes, info);
            else if (e.type == "F16")
                add_widened<float16>(name, e.extents, bytes, info);
            else
                add(file.name(), name, e, bytes, info);
        }
    }

    const state_view& view() const { return view_; }

private:
    template <class Half>
    void add_widened(const std::string& name, const shape& extents, const std::vector<std::byte>& bytes,
                     const piece_info& info) {
        tensor<float> t(extents, memory_category::workspace);
        for (index_t i = 0; i < t.size(); ++i) {
            Half half;
            std::memcpy(&half.bits, bytes.data() + static_cast<std::size_t>(i) * 2, 2);
            t.data()[i] = static_cast<float>(half);
        }
        view_.add(name, t, info);
    }
    void add(const std::string& file, const std::string& name, const safetensors_entry& e,
             const std::vector<std::byte>& bytes, const piece_info& info) {
        const auto known = std::ranges::find_if(exchanged_types, [&](const auto& t) { return t.second == e.type; });
        require(known != exchanged_types.end(), file, ": ", e.name, " is of dtype ", e.type,
                ", which no state has; convert it to F32 first");
        with_element_type(known->first, [&](auto zero) {
            tensor<decltype(zero)> t(e.extents, memory_category::workspace);
            if (!bytes.empty()) std::memcpy(t.data(), bytes.data(), bytes.size());
            view_.add(name, t, info);
        });
    }

    state_view view_;
    std::vector<std::unique_ptr<std::string>> texts_;
};

/// Makes `run`, with `tensors` as its version 0, and what `lineage` says of it. Throws where it has versions. Returns
/// the version's name.
inline std::string make_run(const std::filesystem::path& run, const state_view& tensors, nlohmann::json lineage) {
    require(list_versions(run / "states").empty(), run.string(), ": has saved states; name a new directory");
    const run_directory made(run);
    const version_id id{0, new_attempt()};
    const std::filesystem::path states = run / "states", directory = prepare_version(states, id);
    pack_layout layout({id, 0, 1}, tensors);
    staging_room room;
    std::byte* const image = room.of(layout.bytes());
    layout.fill(image);
    layout.seal(image);
    direct_file<> pack(directory / layout.id().file());
    pack.write(image, layout.bytes());
    pack.commit();
    lineage["version"] = id.name();
    lineage["run"] = std::filesystem::absolute(run).lexically_normal().string();
    lineage["step"] = 0;
    lineage["time"] = std::time(nullptr);
    lineage["tags"] = nlohmann::json::array();
    commit_version(states, id, 1, lineage.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n');
    return id.name();
}

/// Makes `run`, with the file at `path` as its version 0; as make_run().
inline std::string import_version(const std::filesystem::path& path, const std::filesystem::path& run) {
    const safetensors_file file(path);
    const imported_tensors tensors(file);
    return make_run(run, tensors.view(), {{"imported", std::filesystem::absolute(path).lexically_normal().string()}});
}

}  // namespace cairn::states
