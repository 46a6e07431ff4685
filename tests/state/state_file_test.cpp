#include "catch.hpp"
#include "optim/small_model.hpp"
#include "state/temporary_folder.hpp"

#include <cairn/optim/adam.hpp>
#include <cairn/optim/lr_schedule.hpp>
#include <cairn/state/state_file.hpp>

#include <fstream>
#include <iostream>
#include <iterator>

using namespace cairn;
using Catch::Matchers::Contains;

namespace {

std::string content(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

void overwrite(const std::filesystem::path& path, const std::string& bytes) {
    std::filesystem::remove(path);  // truncating instead makes some file systems write to the disk at once
    std::ofstream(path, std::ios::binary) << bytes;
}

// One entry of every type, with values that a careless copy would change.
struct everything {
    tensor<float> f = tensor<float>::zeros({2, 3});
    tensor<double> d = tensor<double>::zeros({5});
    tensor<bfloat16> b = tensor<bfloat16>::filled({3}, bfloat16(0));
    tensor<std::int32_t> i = tensor<std::int32_t>::zeros({1, 2, 1, 2});
    tensor<std::uint8_t> u = tensor<std::uint8_t>::zeros({70});
    tensor<float> none = tensor<float>::zeros({0, 4});
    std::int64_t step = 0;
    std::uint64_t seed = 0;
    cairn::index_t position = 0;
    double lr = 0;
    int count = 0;
    bool flag = false;
    std::string text, empty = "not empty";

    void set() {
        f[0] = -0.0f;
        f[1] = std::bit_cast<float>(0x7fc01234u);  // NaN with a payload
        f[2] = std::numeric_limits<float>::denorm_min();
        d[4] = 1.0 / 3;
        b[2] = bfloat16(1.5f);
        i[3] = -7;
        u[69] = 255;
        step = -(std::int64_t{1} << 62);
        seed = ~std::uint64_t{0};
        position = 12345;
        lr = 0.1;
        count = -3;
        flag = true;
        text = std::string("config\0\xff[tail]", 15);
        empty.clear();
    }

    state_view view() {
        state_view v;
        v.add("f", f);
        v.add("d", d);
        v.add("b", b);
        v.add("i", i);
        v.add("u", u);
        v.add("none", none);
        v.add("step", step);
        v.add("seed", seed);
        v.add("position", position);
        v.add("lr", lr);
        v.add("count", count);
        v.add("flag", flag);
        v.add("text", text);
        v.add("empty", empty);
        return v;
    }

    bool operator==(const everything& o) const {
        return same_bits(f, o.f) && same_bits(d, o.d) && same_bits(b, o.b) && same_bits(i, o.i) && same_bits(u, o.u) &&
               step == o.step && seed == o.seed && position == o.position && lr == o.lr && count == o.count &&
               flag == o.flag && text == o.text && empty == o.empty;
    }
};

}  // namespace

TEST_CASE("what is saved comes back bit by bit") {
    const temporary_folder folder;
    const auto path = folder / "run.state";
    everything saved, loaded;
    saved.set();
    save_state(path, saved.view());
    load_state(path, loaded.view());
    CHECK(loaded == saved);
    CHECK_FALSE(std::filesystem::exists(folder / "run.state.tmp"));

    const std::string first = content(path);
    save_state(path, loaded.view());
    CHECK(content(path) == first);

    const auto entries = list_state(path);
    REQUIRE(entries.size() == 14);
    CHECK(entries[0].name == "f");
    CHECK(entries[0].shape == shape{2, 3});
    CHECK(entries[0].type == element_type::float32);
    for (const auto& e : entries) CHECK(e.position % 64 == 0);
    CHECK(entries[12].bytes == 15);
}

TEST_CASE("the order of entries in the program is free") {
    const temporary_folder folder;
    int a = 1, b = 2;
    state_view forth, back;
    forth.add("a", a);
    forth.add("b", b);
    save_state(folder / "s", forth);
    a = b = 0;
    back.add("b", b);
    back.add("a", a);
    load_state(folder / "s", back);
    CHECK(a == 1);
    CHECK(b == 2);
}

TEST_CASE("a state of nothing can be saved") {
    const temporary_folder folder;
    save_state(folder / "s", {});
    load_state(folder / "s", {});
    CHECK(list_state(folder / "s").empty());
}

TEST_CASE("a relative path without a folder is in the current folder") {
    const temporary_folder folder;
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(folder.path);
    int a = 5;
    state_view v;
    v.add("a", a);
    save_state("s", v);
    a = 0;
    load_state("s", v);
    std::filesystem::current_path(before);
    CHECK(a == 5);
}

TEST_CASE("every damaged byte is found and memory stays as it was") {
    const temporary_folder folder;
    everything saved;
    saved.set();
    save_state(folder / "good", saved.view());
    const std::string good = content(folder / "good");
    for (std::size_t at = 0; at < good.size(); ++at) {
        std::string bad = good;
        bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
        overwrite(folder / "bad", bad);
        everything loaded;
        INFO("byte " << at);
        REQUIRE_THROWS_WITH(load_state(folder / "bad", loaded.view()), Contains((folder / "bad").string()));
        REQUIRE(loaded == everything{});
    }
}

TEST_CASE("every truncation is found, and bytes too many") {
    const temporary_folder folder;
    everything saved;
    saved.set();
    save_state(folder / "good", saved.view());
    const std::string good = content(folder / "good");
    for (std::size_t length = 0; length < good.size(); ++length) {
        overwrite(folder / "bad", good.substr(0, length));
        everything loaded;
        INFO("length " << length);
        REQUIRE_THROWS_WITH(load_state(folder / "bad", loaded.view()), Contains("truncated"));
        REQUIRE(loaded == everything{});
    }
    overwrite(folder / "bad", good + 'x');
    CHECK_THROWS_WITH(load_state(folder / "bad", saved.view()), Contains("1 bytes after the last entry"));
}

TEST_CASE("damaged data is named with its entry and place") {
    const temporary_folder folder;
    everything saved;
    saved.set();
    save_state(folder / "s", saved.view());
    const auto place = list_state(folder / "s")[1];  // d
    std::string bytes = content(folder / "s");
    bytes[place.position + 3] = 1;
    overwrite(folder / "s", bytes);
    CHECK_THROWS_WITH(load_state(folder / "s", saved.view()),
                      Contains("entry d") && Contains(std::to_string(place.position)) && Contains("checksum"));
}

// The checksums are right here, so that the parser itself is what stands.
TEST_CASE("a directory that lies is an error, never a crash") {
    const temporary_folder folder;
    everything saved;
    saved.set();
    save_state(folder / "good", saved.view());
    const std::string good = content(folder / "good");
    std::uint64_t directory_bytes = 0;
    std::memcpy(&directory_bytes, good.data() + 16, 8);
    const random_stream random{17, 0, 0};
    int refused = 0;
    for (std::uint64_t trial = 0; trial < 1000; ++trial) {
        std::string bad = good;
        for (std::uint64_t k = 0; k <= trial % 3; ++k)
            bad[32 + random.below(directory_bytes, 8 * trial + 2 * k)] =
                static_cast<char>(random.bits(16 * trial + 4 * k));
        const std::uint32_t directory_sum = crc32c(bad.data() + 32, directory_bytes);
        std::memcpy(bad.data() + 24, &directory_sum, 4);
        const std::uint32_t header_sum = crc32c(bad.data(), 28);
        std::memcpy(bad.data() + 28, &header_sum, 4);
        overwrite(folder / "bad", bad);
        everything loaded;
        try {
            load_state(folder / "bad", loaded.view());
        } catch (const error&) {
            ++refused;
            REQUIRE(loaded == everything{});
        }
    }
    CHECK(refused > 960);  // a byte may be replaced by itself
}

TEST_CASE("files that are no saved state are named") {
    const temporary_folder folder;
    everything state;
    CHECK_THROWS_WITH(load_state(folder / "absent", state.view()), Contains("absent") && Contains("No such file"));
    CHECK_THROWS_WITH(load_state(folder.path, state.view()), Contains("not a regular file"));
    overwrite(folder / "empty", "");
    CHECK_THROWS_WITH(load_state(folder / "empty", state.view()), Contains("truncated") && Contains("the file has 0"));
    overwrite(folder / "text", std::string(500, 'x'));
    CHECK_THROWS_WITH(load_state(folder / "text", state.view()), Contains("not a saved state"));
}

TEST_CASE("a state of another model is refused with all differences named") {
    const temporary_folder folder;
    auto a = tensor<float>::filled({2, 3}, 1.0f), b = tensor<float>::filled({4}, 2.0f);
    auto other = tensor<float>::filled({3, 2}, 0.0f);
    auto wide = tensor<double>::filled({4}, 0.0);
    int step = 7;
    state_view saved, shapes, names;
    saved.add("conv/weight", a);
    saved.add("bias", b);
    saved.add("step", step);
    save_state(folder / "s", saved);
    shapes.add("conv/weight", other);
    shapes.add("bias", wide);
    shapes.add("step", step);
    CHECK_THROWS_WITH(load_state(folder / "s", shapes),
                      Contains("conv/weight is float32 (2, 3) in the file, float32 (3, 2) in the program") &&
                          Contains("bias is float32 (4) in the file, float64 (4) in the program"));
    names.add("conv/weight", a);
    names.add("scale", b);
    CHECK_THROWS_WITH(load_state(folder / "s", names), Contains("scale (float32 (4)) is not in the file") &&
                                                           Contains("bias (float32 (4)) is only in the file") &&
                                                           Contains("step (int32 ()) is only in the file"));
    for (float value : other.span()) CHECK(value == 0);
}

TEST_CASE("two entries of one name are refused") {
    int a = 0;
    state_view v;
    v.add("a", a);
    CHECK_THROWS_WITH(v.add("a", a), Contains("two entries are called a"));
}

namespace {

// State of a training program.
struct run {
    small_model<float> model;
    bound_optimizer<adam, float> opt{adam{{.weight_decay = 0.01}}, *model.memory};
    tensor<float> running_mean = tensor<float>::zeros({7});
    std::int64_t epoch = 0, cursor = 0;
    std::uint64_t seed = 0;
    const lr_schedule rate = one_cycle(20, 0.1);

    state_view view() {
        state_view v;
        v.add("model", model.memory->parameters());
        v.add("buffer", buffer_list<float>{{"norm/mean", &running_mean}});
        v.add("optimizer", opt.tensors());
        v.add("optimizer/steps", opt.steps());
        v.add("epoch", epoch);
        v.add("loader/cursor", cursor);
        v.add("seed", seed);
        return v;
    }
    void train(int steps) {
        for (int i = 0; i < steps; ++i) {
            model.set_gradients(static_cast<int>(cursor));
            opt.step(rate(opt.steps()));
            running_mean[cursor % 7] += model.owned[0]->value[0];
            ++cursor;
        }
    }
};

}  // namespace

TEST_CASE("a restored run goes on with the same bits") {
    const temporary_folder folder;
    run straight, stopped, resumed;
    straight.train(20);
    stopped.epoch = 3;
    stopped.seed = 99;
    stopped.train(8);
    save_state(folder / "s", stopped.view());
    fill(resumed.model.memory->values().span(), {initializer::distribution::normal, 1.0, 0.0}, {5, 5, 5});
    load_state(folder / "s", resumed.view());
    CHECK(resumed.opt.steps() == 8);
    CHECK(resumed.cursor == 8);
    CHECK(resumed.epoch == 3);
    CHECK(resumed.seed == 99);
    resumed.train(12);
    for (std::size_t k = 0; k < straight.model.owned.size(); ++k)
        CHECK(same_bits(straight.model.owned[k]->value, resumed.model.owned[k]->value));
    CHECK(same_bits(straight.running_mean, resumed.running_mean));
    const auto a = straight.opt.tensors(), b = resumed.opt.tensors();
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(same_bits(a[i].t, b[i].t));
}
