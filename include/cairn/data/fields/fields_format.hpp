#pragma once
// data.format = fields: from fields on a grid others on the same grid (field_samples.hpp), from .npy or netCDF files
// (field_files.hpp). The tested samples are all of data.fields.test_files, or of the files a fold of samples, a fold of
// whole files, or chosen files (data/table/table_split.hpp). Test files may have another resolution than the others.

#include <cairn/data/data_format.hpp>
#include <cairn/data/fields/audit_fields.hpp>
#include <cairn/data/table/table_split.hpp>

#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn {

/// data.format = "fields".
struct fields_format {
    static constexpr const char* name = "fields";
    static constexpr data_source source{"fields"};
    std::vector<std::string> files, test_files;
    field_choices choices;
    table_split_choice split;

    template <class Table>
    void read(Table& table) {
        table("files", files);
        table("test_files", test_files);
        table("inputs", choices.inputs);
        table("targets", choices.targets);
        table("anomalies", choices.anomalies);
        table("coordinates", choices.coordinates);
        table("known", choices.known, from_to(0, most_pixels * most_pixels));
        table("known_seed", choices.known_seed, at_least(0));
        split.group = "file", split.section = "data.fields";
        table(
            "split", split.kind,
            {{"samples", table_split::rows}, {"files", table_split::groups}, {"leave_files_out", table_split::chosen}});
        table("tested", split.tested);
        split.folds.read(table);
    }

    /// Of one variable each on a grid of 16 × 16.
    data_parts without_files(std::uint64_t seed) const {
        constexpr index_t edge = 16;
        target_info info;
        info.kind = target_kind::values;
        info.labels = label_place::voxels;
        info.labels_each = edge * edge;
        info.names = choices.targets.empty() ? std::vector<std::string>{"target"} : choices.targets;
        info.mean.assign(info.names.size(), 0);
        info.scale.assign(info.names.size(), 1);
        const index_t inputs = std::max<index_t>(1, std::ssize(choices.inputs)) * (choices.known > 0 ? 2 : 1);
        return synthetic_parts({edge, edge, inputs + (choices.coordinates ? 2 : 0)}, std::move(info), seed);
    }

    data_parts load(const std::filesystem::path& folder) const {
        require(!files.empty() && !choices.inputs.empty() && !choices.targets.empty(),
                "data.fields: name files, inputs and targets; files has ", files.size(), ", inputs ",
                choices.inputs.size(), ", targets ", choices.targets.size());
        const auto read = [&](const std::vector<std::string>& named) {
            return std::make_shared<const field_files>(field_files::read(folder, named, choices.variables()));
        };
        const auto whole = read(files);
        std::vector<index_t> all(static_cast<std::size_t>(whole->samples()));
        std::iota(all.begin(), all.end(), index_t{0});
        if (test_files.empty()) {
            const csv_table table = described(*whole, folder.string());
            const split_indices parts = split.split(table, all, {}, std::vector{&table.columns[1]});
            data_parts made = parts_of(whole, parts.first, whole, parts.second);
            made.audit = [whole, parts, target = choices.targets.front()] {
                return audit_fields(*whole, target, parts.first, parts.second);
            };
            return made;
        }
        const auto tested = read(test_files);
        require(tested->arrays.front().axes[2] == whole->arrays.front().axes[2] ||
                    (!choices.anomalies && whole->arrays.front().grid == field_grid{}),
                "data.fields.test_files: another resolution than that of data.fields.files goes without anomalies and "
                "areas of cells alone");
        std::vector<index_t> others(static_cast<std::size_t>(tested->samples()));
        std::iota(others.begin(), others.end(), index_t{0});
        return parts_of(whole, all, tested, others);
    }

private:
    data_parts parts_of(const std::shared_ptr<const field_files>& of_train, const std::vector<index_t>& train,
                        const std::shared_ptr<const field_files>& of_test, const std::vector<index_t>& test) const {
        const auto scaled = std::make_shared<const scaled_fields>(choices, *of_train, train, *of_test);
        const field_samples trained(of_train, scaled, train);
        data_parts made{trained, field_samples(of_test, scaled, test).unaugmented(), trained.sample_shape(),
                        trained.targets()};
        const auto tell = [&](const char* what, const std::vector<std::string>& variables, const auto& scalings) {
            for (std::size_t v = 0; v < variables.size(); ++v)
                for (const field_scaling& s : scalings[v])
                    made.learned.push_back(concat(
                        what, ' ', variables[v], ": mean ",
                        s.mean.size() == 1 ? concat(s.mean[0], ", deviation ", s.deviation[0])
                                           : "and deviation of each pixel",
                        ", ", 100.0 * static_cast<double>(s.all - s.known) / static_cast<double>(s.all), " % missing"));
        };
        tell("input", choices.inputs, scaled->of_input);
        tell("target", choices.targets, scaled->of_target);
        made.belong_together = test_files.empty() && split.kind != table_split::rows;
        return made;
    }

    // Of each sample its file, and a number that samples of equal inputs have in common.
    csv_table described(const field_files& all, const std::string& folder) const {
        csv_table table{folder, std::vector<csv_column>(2)};
        csv_column &file = table.columns[0], &inputs = table.columns[1];
        file.name = split.group, inputs.name = "inputs";
        file.spelling = all.names;
        for (index_t i = 0; i < all.samples(); ++i) {
            file.numbers.push_back(std::numeric_limits<double>::quiet_NaN());
            file.words.push_back(static_cast<std::int32_t>(all.file_of[static_cast<std::size_t>(i)]));
            std::string bytes;
            for (const std::string& variable : choices.inputs) {
                const field_array& array = all.at(variable);
                bytes.append(reinterpret_cast<const char*>(array.field(i, 0)),
                             static_cast<std::size_t>(array.axes[1] * array.cells()) * sizeof(float));
            }
            inputs.numbers.push_back(static_cast<double>(std::hash<std::string_view>{}(bytes) >> 12));
            inputs.words.push_back(-1);
        }
        return table;
    }
};

}  // namespace cairn
