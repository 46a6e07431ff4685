// Settings by their old names: read under the new ones, with a message.

#include <cairn/train/configuration.hpp>

#include "catch.hpp"
#include "messages.hpp"

using namespace cairn;

TEST_CASE("settings: every old name is read as the new one, and told of", "[settings]") {
    for (const auto& [before, now] : renamed_settings) {
        if (before.find('.') == std::string_view::npos) continue;
        const std::string old_name(before), name(now);
        const auto dot = old_name.find('.');
        configuration file = configuration::from_text("[" + old_name.substr(0, dot) + "]\n" + old_name.substr(dot + 1) +
                                                      " = \"some value\"\n");
        configuration line;
        line.set(old_name + "=some value");
        for (configuration* c : {&file, &line}) {
            INFO(old_name);
            CHECK_FALSE(c->has(old_name));
            CHECK(c->get(name, "") == "some value");
            CHECK_NOTHROW(c->check_all_used());
            REQUIRE(c->notices().size() == 1);
            CHECK(test::contains(c->notices()[0], "'" + old_name + "' is called '" + name + "' now"));
        }
        CHECK(test::contains(file.notices()[0], "(text):2: "));
        CHECK(test::contains(line.notices()[0], "--set: "));
        // No new name is another setting's old one: what is read today stays what it is.
        CHECK(current_name(name) == name);
        CHECK(configuration::from_text("[" + name.substr(0, name.find('.')) + "]\n" + name.substr(name.find('.') + 1) +
                                       " = 1\n")
                  .notices()
                  .empty());
    }
}

TEST_CASE("settings: old values are read as the new ones", "[settings]") {
    for (const auto& [setting, before, now] : renamed_values) {
        configuration c;
        c.set(std::string(setting) + "=" + std::string(before));
        CHECK(c.get(std::string(setting), "") == now);
        REQUIRE(c.notices().size() == 1);
        CHECK(test::contains(c.notices()[0], concat(setting, " = \"", before, "\" is called \"", now, "\" now")));
        CHECK(current_value(setting, now) == now);
    }
    configuration both = configuration::from_text("[train]\nstash = \"sqrt\"\n");
    CHECK(both.get("train.activation_memory", "keep") == "recompute");
    CHECK(both.notices().size() == 2);
    configuration other = configuration::from_text("[data]\npath = \"sqrt\"\n");
    CHECK(other.get("data.path", "") == "sqrt");
}

TEST_CASE("settings: old and new names together", "[settings]") {
    CHECK(
        test::contains(test::message_of([] { configuration::from_text("[kfac]\nlag = 1\ninverse_staleness = 2\n"); }),
                       "(text):2: setting 'kfac.lag' is the old name of 'kfac.inverse_staleness', which is given too"));
    // The command line is over the file, whichever name each of them uses.
    configuration c = configuration::from_text("[kfac]\nlag = 1\n[schedule]\nrise = 0.1\nkind = \"cosine\"\n");
    c.set("kfac.inverse_staleness=3");
    c.set("schedule.rise=0.2");
    CHECK(c.get("kfac.inverse_staleness", 0, any_number) == 3);
    CHECK(c.get("lr_schedule.pct_start", 0.0, any_number) == 0.2);
    CHECK(c.get("lr_schedule.kind", "") == "cosine");
    c.set("schedule={kind=\"step\", factor=0.5}");
    CHECK(c.get("lr_schedule.kind", "") == "step");
    CHECK(c.get("lr_schedule.gamma", 0.0, any_number) == 0.5);
    CHECK_FALSE(c.has("lr_schedule.pct_start"));
    // What a run writes has new names alone.
    CHECK(test::contains(c.resolved(), "[lr_schedule]"));
    CHECK_FALSE(test::contains(c.resolved(), "[schedule]"));
}
