#pragma once
// Versions of a few tensors, written by any number of ranks one after another.

#include "state/breaking_system.hpp"
#include "state/temporary_folder.hpp"

#include <cairn/core/range.hpp>
#include <cairn/state/direct_file.hpp>
#include <cairn/state/version.hpp>

#include <cstdlib>
#include <memory>

namespace cairn::test {

// What rank r has: a slice of the columns of a table, a share of a tensor that all have; rank 0 a number and a text.
// Values depend on `seed`.
struct small_rank {
    tensor<float> table, all;
    std::int64_t number;
    std::string text;
    state_view view;

    small_rank(int r, int ranks, int seed) : number(seed), text("plan " + std::to_string(seed)) {
        const range columns = shard_of(10, ranks, r);
        table = tensor<float>({7, columns.count});
        for (index_t i = 0; i < table.size(); ++i)
            table[i] = static_cast<float>(seed + 10 * (i / columns.count) + columns.begin + i % columns.count);
        all = tensor<float>({1500});
        for (index_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(seed * i);
        const piece_share of_root{0, r == 0 ? 1 : 0};
        view.add("model/table", table,
                 {.where = piece{{7, 10}, {0, columns.begin}, table.shape(), 0, table.size()}, .share = {}});
        view.add("model/all", all, {.where = {}, .share = {r, ranks}});
        view.add("steps", number, {.where = {}, .share = of_root});
        view.add("plan", text, {.where = {}, .share = of_root});
    }
};

// An image in memory as direct_file takes it, zeros at first.
struct aligned_image {
    std::unique_ptr<std::byte, void (*)(void*)> data;

    explicit aligned_image(std::size_t bytes)
        : data(static_cast<std::byte*>(std::aligned_alloc(direct_block, (bytes / direct_block + 1) * direct_block)),
               std::free) {
        std::memset(data.get(), 0, (bytes / direct_block + 1) * direct_block);
    }
};

template <class System = posix_system>
void write_small_pack(const std::filesystem::path& directory, const pack_id& id, const state_view& view,
                      System system = {}) {
    pack_layout layout(id, view);
    const aligned_image image(layout.bytes());
    layout.fill(image.data.get());
    layout.seal(image.data.get());
    direct_file<System> file(directory / id.file(), system);
    file.write(image.data.get(), layout.bytes());
    file.commit();
}

// Packs of all ranks in the directory of a version in the making.
template <class System = posix_system>
std::filesystem::path prepare_small_version(const std::filesystem::path& states, const version_id& id, int ranks,
                                            int seed, System system = {}) {
    std::filesystem::path directory;
    for (int r = 0; r < ranks; ++r) {
        const small_rank rank(r, ranks, seed);
        directory = prepare_version(states, id, system);
        write_small_pack(directory, {id, r, ranks}, rank.view, system);
    }
    return directory;
}

template <class System = posix_system>
manifest commit_small_version(const std::filesystem::path& states, const version_id& id, int ranks, int seed,
                              System system = {}) {
    prepare_small_version(states, id, ranks, seed, system);
    return commit_version(states, id, ranks, "{}\n", system);
}

// Digest of a version with `seed`, from the whole tensors.
inline std::uint64_t digest_of_small_version(int seed) {
    const small_rank whole(0, 1, seed);
    std::uint64_t sum = 0;
    for (const auto& e : whole.view.entries()) {
        tensor_digest d;
        d.add(e.bytes_begin(), e.element_bytes(), 0, e.bytes() / e.element_bytes());
        sum += named_digest(e.name, d.value());
    }
    return sum;
}

// Names in `states` that are no versions.
inline std::vector<std::string> leavings_in(const std::filesystem::path& states) {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(states))
        if (entry.path().filename().string()[0] == '.') found.push_back(entry.path().filename().string());
    return found;
}

}  // namespace cairn::test
