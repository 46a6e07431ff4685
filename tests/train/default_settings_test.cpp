// course/settings.md: a default that it gives is the one in force where nothing sets it, as the code answers when it is
// asked.

#include "catch.hpp"
#include "messages.hpp"
#include "train/compiled_session.hpp"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace cairn {

namespace {

using default_values = std::map<std::string, std::set<std::string>>;  // setting → what it is where nothing sets it

/// Adds what `settings` were asked for and do not have in `text`.
void add_defaults(default_values& all, const std::string& text, const configuration& settings) {
    const configuration given = configuration::from_text(text);
    std::istringstream lines(settings.resolved());
    std::string section;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with('[')) section = line.substr(1, line.size() - 2) + '.';
        const auto equals = line.find(" = ");
        if (equals == std::string::npos) continue;
        const std::string path = section + line.substr(0, equals);
        if (!given.has(path)) all[path].insert(line.substr(equals + 3));
    }
}

default_values defaults_in_force() {
    default_values all;
    std::vector<std::string> workloads{"data.format='mnist'\nmodel.kind='lenet'\n",
                                       "data.format='mnist'\nmodel.kind='cnn'\n",
                                       "data.format='cifar10'\nmodel.kind='resnet-cifar'",
                                       "data.format='folder'\nmodel.kind='resnet'",
                                       "data.format='cifar100'\nmodel.kind='mlp'",
                                       "data.format='packed'\nmodel.kind='resnet'",
                                       "data.format='quijote'\nmodel.kind='map-cnn'",
                                       "data.format='cosmology'\nmodel.kind='cosmoflow'",
                                       "data.format='text'\nmodel.kind='transformer'",
                                       "data.format='text'\ndata.stream=true\nmodel.kind='transformer-xl'",
                                       "data.format='graph'\nmodel.kind='gcn'\ntrain.batch=1\n",
                                       "data.format='table'\nmodel.kind='residual-mlp'",
                                       "data.format='fields'\nmodel.kind='unet'",
                                       "data.format='segmentation'\nmodel.kind='unet'\nloss.kind='dice'",
                                       "data.format='mnist'\nmodel.kind='autoencoder'\nloss.kind='reconstruction'"};
    const std::string digits = "data.format='mnist'\nmodel.kind='mlp'\n";
    workloads.push_back(digits + "[[phases]]\nepochs=[0, 1]\n");
    for (const std::string more : {"", "activations.rule='momentum'\n", "activations.rule='fixed'\n"})
        workloads.push_back(digits + "train.activation_memory='compress'\n" + more);
    for (const std::string kind : {"sgd", "adam", "adamw", "lars", "lamb", "kfac", "shampoo", "soap", "muon"})
        workloads.push_back(digits + "optimizer.kind='" + kind + "'\n");
    workloads.push_back(digits + "optimizer.kind='kfac'\nkfac.step_size='quadratic_model'\n");
    workloads.push_back(digits + "optimizer.kind='kfac'\nkfac.fisher='mc'\nkfac.step_size='clip'\n");
    for (const std::string& kind : lr_schedules::global().names())
        workloads.push_back(digits + "lr_schedule.kind='" + kind + "'\n");
    for (const std::string& kind : compressors<cpu>::global().names())
        workloads.push_back(digits + "compress.kind='" + kind + "'\n");
    workloads.push_back(digits + "compress.kind='auto'\n");
    for (const std::string& text : workloads) {
        run_parts<> run(configuration::from_text(text), {.out = {}, .resume = {}, .max_steps = 1, .generated = true},
                        self_communicator{});
        add_defaults(all, text, run.task.settings);
    }
    const auto read = [&](const std::string& text, const std::function<void(configuration&)>& reader) {
        configuration settings = configuration::from_text(text);
        reader(settings);
        add_defaults(all, text, settings);
    };
    read("", read_loss_scale);
    read("state.local='x'\nstate.redundancy='rs'\n", [](configuration& settings) { read_state_settings(settings); });
    read("", [](configuration& settings) { detail::read_kfac_ranks(settings); });
    for (const std::string algorithm : {"dladmm", "pdadmm"})
        for (const std::string more : {"", "admm.adaptive_rho='rising'\nadmm.acceleration='anderson'\n",
                                       "admm.adaptive_rho='growing'\nadmm.quantise='qsgd'\n"})
            if (algorithm == "pdadmm" || more.find("qsgd") == std::string::npos)
                read(more, [&](configuration& settings) { read_admm(settings, algorithm, 1, 100); });
    read("admm.acceleration='relaxation'\n", [](configuration& settings) { read_admm(settings, "pdadmm", 1, 100); });
    return all;
}

/// Text without quotes and spaces, a number in one form: "1e-3" and "0.001" are the same.
std::string in_one_form(const std::string& text) {
    std::string plain;
    for (const char c : text)
        if (!std::strchr("`'\" \t", c)) plain += c;
    char* end = nullptr;
    const double number = std::strtod(plain.c_str(), &end);
    if (!plain.empty() && *end == '\0') return concat(number);
    return std::regex_replace(plain, std::regex("\\.0(?=[,\\]])"), "");  // of an array's
}

/// Parts of `text` between separators that are in no brackets.
std::vector<std::string> pieces_of(const std::string& text, const std::string& separators) {
    std::vector<std::string> parts(1);
    int depth = 0;
    for (const char c : text) {
        depth += (c == '[' || c == '(') - (c == ']' || c == ')');
        if (depth == 0 && separators.find(c) != std::string::npos)
            parts.emplace_back();
        else
            parts.back() += c;
    }
    return parts;
}

/// The defaults that the page gives: of each setting the words of its cell, one of which is the value.
default_values defaults_on_the_page() {
    std::ifstream page("course/settings.md");
    REQUIRE(page);
    default_values all;
    const std::regex setting("`([a-z][a-z0-9]*(?:[._][a-z0-9]+)*)`"),
        behind("`([a-z]+\\.[a-z0-9_.]+)` \\(([^() ]+)\\)");
    for (std::string line; std::getline(page, line);) {
        for (std::sregex_iterator found(line.begin(), line.end(), behind), end; found != end; ++found)
            all[(*found)[1]].insert(in_one_form((*found)[2]));  // "of the last `admm.memory` (4) iterations"
        const std::vector<std::string> cells = pieces_of(line, "|");
        if (cells.size() < 5 || cells[1].find('`') == std::string::npos) continue;
        std::vector<std::string> names;
        for (std::sregex_iterator found(cells[1].begin(), cells[1].end(), setting), end; found != end; ++found)
            names.push_back((*found)[1]);
        const std::vector<std::string> values = pieces_of(cells[2], ",");
        for (std::size_t i = 0; i < names.size(); ++i) {
            const bool one_each = names.size() > 1 && values.size() == names.size();
            for (const std::string& word : pieces_of(one_each ? values[i] : cells[2], " ,;"))
                all[names[i]].insert(in_one_form(word));
        }
    }
    return all;
}

// Not compared: defaults that the page gives in words, as they depend on workload or machine; settings without a
// default; and those that other functions read than those above: of benchmarks/train.cpp, and of ADMM's first weights.
const std::set<std::string> not_compared{"admm.mu",         "data.folder.resize",
                                         "data.path",       "loss.kind",
                                         "model.ffn_dim",   "data.name",
                                         "train.log_every", "state.every",
                                         "data.format",     "phases.1.epochs",
                                         "model.kind",      "parallel.transport",
                                         "train.device",    "train.matmul_precision",
                                         "train.precision", "admm.init",
                                         "admm.init_scale"};

}  // namespace

TEST_CASE("settings: the defaults on the page of settings are those in force", "[settings]") {
    const default_values page = defaults_on_the_page(), in_force = defaults_in_force();
    std::string missing;
    for (const auto& [path, words] : page) {
        if (not_compared.contains(path)) continue;
        const auto answers = in_force.find(path);
        if (answers == in_force.end()) {
            missing += path + ' ';
            continue;
        }
        for (const std::string& answer : answers->second) {
            const std::string value = in_one_form(answer);
            CAPTURE(path, value, words);
            CHECK((words.contains(value) || (value.empty() && words.contains("none"))));
        }
    }
    CHECK(missing == "");
}

}  // namespace cairn
