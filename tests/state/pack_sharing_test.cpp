#include "catch.hpp"
#include "state/small_version.hpp"

#include <cairn/state/pack_sharing.hpp>
#include <cairn/state/saved_state.hpp>

namespace cairn::test {

using Catch::Matchers::Contains;

namespace {

// What rank r of `ranks` has: a frozen tensor that all have and divide, a trained one of its own, and a counter.
struct partly_frozen {
    tensor<float> frozen = tensor<float>({20'000}), trained = tensor<float>({6'000});
    std::int64_t steps;
    state_view view;

    partly_frozen(int r, int ranks, int seed) : steps(seed) {
        for (index_t i = 0; i < frozen.size(); ++i) frozen[i] = static_cast<float>(i % 977);
        for (index_t i = 0; i < trained.size(); ++i) trained[i] = static_cast<float>(seed * (i + r));
        view.add("frozen", frozen, {.where = {}, .share = {r, ranks}});
        view.add("trained", trained, {.where = piece::whole({6'000}).in_row(r, ranks), .share = {}});
        view.add("steps", steps, {.where = {}, .share = {0, r == 0 ? 1 : 0}});
    }
};

// Commits what the ranks have, sharing with `earlier`. Returns the bytes that were left out.
template <class System = posix_system>
std::uint64_t commit_sharing(const std::filesystem::path& states, const version_id& id, int ranks, int seed,
                             const std::filesystem::path& earlier, System system = {}) {
    std::uint64_t left_out = 0;
    for (int r = 0; r < ranks; ++r) {
        const partly_frozen rank(r, ranks, seed);
        const auto directory = prepare_version(states, id);
        pack_layout layout({id, r, ranks}, rank.view);
        const aligned_image image(layout.bytes());
        layout.fill(image.data.get());
        layout.seal(image.data.get());
        left_out += share_with_earlier(layout, image.data.get(), earlier, directory, system);
        direct_file<> file(directory / layout.id().file());
        file.write(image.data.get(), layout.bytes());
        file.commit();
    }
    commit_version(states, id, ranks, "{}");
    return left_out;
}

bool holds(const std::filesystem::path& version, int ranks, int seed) {
    verify_version(version, true);
    std::vector<std::string> files;
    for (int r = 0; r < ranks; ++r) files.push_back(pack_id{{}, r, ranks}.file());
    const saved_state saved = saved_state::of_packs(version, files);
    for (int r = 0; r < ranks; ++r) {
        const partly_frozen expected(r, ranks, seed);
        partly_frozen found(r, ranks, seed + 1);
        std::ranges::fill(found.frozen.span(), -1.0f);
        saved.load(found.view);
        if (!std::ranges::equal(found.frozen.span(), expected.frozen.span()) ||
            !std::ranges::equal(found.trained.span(), expected.trained.span()) || (r == 0 && found.steps != seed))
            return false;
    }
    return true;
}

version_id step(std::int64_t n) { return {n, {0x3f2a9c41d07b5e66, 7}}; }

std::uint64_t bytes_of(const std::filesystem::path& version, const std::string& file) {
    return std::filesystem::file_size(version / file);
}

}  // namespace

TEST_CASE("pieces that do not change are in one pack, which later versions link") {
    for (const int ranks : {1, 3}) {
        const temporary_folder run;
        const auto directory = [&](int n) { return run / step(n).name(); };
        CHECK(commit_sharing(run.path, step(1), ranks, 1, run / "none") == 0);
        const std::uint64_t left_out = commit_sharing(run.path, step(2), ranks, 2, directory(1));
        CHECK(left_out >= 80'000);
        CHECK(left_out < 80'000 + 4096u * static_cast<unsigned>(ranks));  // padding goes too
        commit_sharing(run.path, step(3), ranks, 3, directory(2));
        CHECK(holds(directory(2), ranks, 2));
        const auto first = directory(1) / "rank-0000.pack";
        CHECK(std::filesystem::hard_link_count(first) == 3);
        CHECK(bytes_of(directory(3), "rank-0000.pack") == bytes_of(directory(2), "rank-0000.pack"));
        CHECK(bytes_of(directory(2), "rank-0000.pack") < 6'000 * 4 + 2 * 4096);
        CHECK(read_manifest(directory(3)).packs.size() == static_cast<std::size_t>(2 * ranks));
        remove_version(run.path, step(1).name());
        remove_version(run.path, step(2).name());
        CHECK(holds(directory(3), ranks, 3));
    }
}

TEST_CASE("an equal version adds a directory alone, as at the start of a branch") {
    const temporary_folder run, branch;
    commit_sharing(run.path, step(5), 1, 5, run / "none");
    commit_sharing(branch.path, {5, {1, 1}}, 1, 5, run / step(5).name());
    const auto directory = branch / version_id{5, {1, 1}}.name();
    CHECK(bytes_of(directory, "rank-0000.pack") < 2000);
    std::filesystem::remove_all(run.path);
    CHECK(holds(directory, 1, 5));
}

TEST_CASE("what cannot be shared is written whole") {
    const temporary_folder run;
    const auto one = run / step(1).name();
    commit_sharing(run.path, step(1), 2, 1, run / "none");
    commit_sharing(run.path, step(2), 1, 2, one);  // other pieces: rank 0 has all
    CHECK(read_manifest(run / step(2).name()).packs.size() == 1);

    struct failing_links : posix_system {
        int link(const char*, const char*) { return errno = EIO, -1; }
    };
    CHECK(commit_sharing(run.path, step(3), 2, 3, one, failing_links()) == 0);
    CHECK(holds(run / step(3).name(), 2, 3));
    struct other_file_system : posix_system {
        int link(const char*, const char*) { return errno = EXDEV, -1; }
    };
    CHECK(commit_sharing(run.path, step(4), 2, 4, one, other_file_system()) > 70'000);
    CHECK(holds(run / step(4).name(), 2, 4));

    std::filesystem::resize_file(one / "rank-0000.pack", 100);  // rank 1 still shares
    CHECK(commit_sharing(run.path, step(5), 2, 5, one) < 45'000);
    CHECK(holds(run / step(5).name(), 2, 5));

    // Less than 2 %: one piece of a block beside many others.
    const tensor<float> small = tensor<float>::filled({1024}, 1.0f);
    tensor<float> large = tensor<float>::filled({100'000}, 1.0f);
    const auto layout_of = [&](std::int64_t n, std::vector<std::byte>& image) {
        state_view view;
        view.add("small", small);
        view.add("large", large);
        pack_layout layout({step(n), 0, 1}, view);
        image.resize(layout.bytes());
        layout.fill(image.data());
        layout.seal(image.data());
        return layout;
    };
    std::vector<std::byte> image;
    pack_layout earlier = layout_of(8, image);
    const pack_directory there{earlier.id(), earlier.bytes(), 0, earlier.pieces()};
    pack_layout equal = layout_of(9, image);
    CHECK(std::ranges::count(detail::shared_pieces(equal, there), nullptr) == 0);
    pack_directory two_holders = there;  // a pack of its own would be linked for the small one
    two_holders.pieces[1].holder = step(7);
    CHECK(detail::shared_pieces(equal, two_holders) ==
          std::vector<const packed_piece*>{nullptr, &two_holders.pieces[1]});
    large[5] = 2;
    pack_layout changed = layout_of(9, image);
    CHECK(std::ranges::count(detail::shared_pieces(changed, there), nullptr) == 2);
}

}  // namespace cairn::test
