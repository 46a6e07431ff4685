#include "catch.hpp"
#include "messages.hpp"

#include <cairn/core/random.hpp>
#include <cairn/train/configuration.hpp>
#include <cairn/train/loss_scaler.hpp>

namespace cairn {

namespace {

// GradScaler.update() as its documentation has it, with its factors 2 and 0.5 and our bounds: what a step leaves, by
// the steps before it.
double reference(double first, std::int64_t every, double most, const std::vector<bool>& finite) {
    double scale = first;
    std::size_t since = 0;  // the first step that counts as consecutive
    for (std::size_t i = 0; i < finite.size(); ++i) {
        if (!finite[i]) {
            scale *= 0.5;
            since = i + 1;
        } else if (i + 1 - since == static_cast<std::size_t>(every)) {
            scale = std::min(2 * scale, most);
            since = i + 1;
        }
    }
    return scale;
}

configuration of(const char* setting) { return configuration::from_text(std::string("[train]\n") + setting + '\n'); }

}  // namespace

TEST_CASE("loss scale: after any steps it is what the rules say", "[loss_scaler]") {
    for (std::uint32_t draw = 0; draw < 40; ++draw) {
        const random_stream random{5, draw, 0};
        const loss_scaler::config c{
            .first = 64, .every = 1 + static_cast<std::int64_t>(draw % 5), .least = 0x1p-40, .most = 1024};
        loss_scaler scaler(c);
        std::vector<bool> finite;
        for (std::uint64_t i = 0; i < 60; ++i) {
            finite.push_back(random.uniform(i) < 0.7 + 0.05 * (draw % 6));
            if (finite.back())
                scaler.took_step();
            else
                REQUIRE(scaler.skipped_step());
            CAPTURE(draw, i);
            REQUIRE(scaler.scale() == reference(c.first, c.every, c.most, finite));
            if (i % 7 == 3) {  // another process goes on
                loss_scaler other(c);
                other.restore(scaler.saved());
                scaler = other;
            }
        }
    }
}

TEST_CASE("loss scale: begins with 65536, doubles after 2,000 steps in a row, and has bounds", "[loss_scaler]") {
    loss_scaler scaler({});
    CHECK(scaler.scale() == 65536);
    for (int i = 0; i < 1999; ++i) scaler.took_step();
    CHECK(scaler.scale() == 65536);
    scaler.took_step();
    CHECK(scaler.scale() == 131072);
    for (int i = 0; i < 1999; ++i) scaler.took_step();
    CHECK(scaler.skipped_step());
    CHECK(scaler.scale() == 65536);
    scaler.took_step();
    CHECK(scaler.scale() == 65536);  // counted from the skipped step on
    for (int i = 0; i < 40 * 2000; ++i) scaler.took_step();
    CHECK(scaler.scale() == 0x1p24);
    for (int halved = 0; halved < 38; ++halved) CHECK(scaler.skipped_step());
    CHECK(scaler.scale() == 0x1p-14);
    CHECK_FALSE(scaler.skipped_step());
    CHECK(scaler.scale() == 0x1p-14);
}

TEST_CASE("loss scale: a fixed one stays, whatever happens and was saved", "[loss_scaler]") {
    loss_scaler scaler({.dynamic = false, .first = 512, .every = 1});
    scaler.took_step();
    CHECK_FALSE(scaler.skipped_step());
    scaler.restore({.scale = 4, .good_steps = 3});
    CHECK(scaler.scale() == 512);
}

TEST_CASE("loss scale: settings", "[loss_scaler]") {
    const auto read = [](const char* setting) {
        configuration settings = of(setting);
        const auto c = read_loss_scale(settings);
        settings.check_all_used();
        return c;
    };
    CHECK((read("").dynamic && read("").first == 65536 && read("").every == 2000));
    CHECK(read("loss_scale = 'dynamic'\nloss_scale_start = 128\nloss_scale_every = 5").first == 128);
    CHECK(read("loss_scale_every = 5").every == 5);
    CHECK((!read("loss_scale = 1024").dynamic && read("loss_scale = 0.5").first == 0.5));
    const auto refused = [&](const char* setting) { return test::message_of([&] { read(setting); }); };
    CHECK(test::contains(refused("loss_scale = 1000"), "train.loss_scale: loss scale 1000: it must be a power of two"));
    CHECK(test::contains(refused("loss_scale = 0"), "train.loss_scale = 0 is out of range"));
    CHECK(test::contains(refused("loss_scale = -2.0"), "train.loss_scale = -2 is out of range"));
    CHECK(test::contains(refused("loss_scale = 33554432"), "train.loss_scale = 33554432 is out of range"));
    CHECK(test::contains(refused("loss_scale = inf"), "train.loss_scale = inf is out of range"));
    CHECK(test::contains(refused("loss_scale = 'dynamc'"), "did you mean 'dynamic'"));
    CHECK(test::contains(refused("loss_scale_start = 3"), "loss_scale_start"));
    CHECK(test::contains(refused("loss_scale_every = 0"), "at least 1"));
    CHECK(test::contains(refused("loss_scale = 8\nloss_scale_every = 2"), "loss_scale_every"));
    CHECK_THROWS_WITH(loss_scaler({}).restore({.scale = 3, .good_steps = 0}), Catch::Contains("power of two"));
    // Where nothing computes in float16.
    const auto passed = [](const char* setting) {
        return test::message_of([&] {
            configuration settings = of(setting);
            pass_over_loss_scale(settings);
            settings.check_all_used();
        });
    };
    CHECK(passed("").empty());
    CHECK(passed("loss_scale = 'dynamic'\nloss_scale_every = 7").empty());
    CHECK(test::contains(passed("loss_scale = 64"), "is for train.precision = fp16"));
}

}  // namespace cairn
