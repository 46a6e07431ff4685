#pragma once
// data.format = table: rows of a CSV file, its settings in table_rows.hpp.

#include <cairn/data/table/audit_table.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace cairn {

/// data.format = "table".
struct table_format {
    static constexpr const char* name = "table";
    static constexpr data_source source{"table"};
    table_config config;

    template <class Table>
    void read(Table& table) {
        config.read(table);
    }
    /// Of so many columns of numbers as are named, else 16, or of a text of 32 different bytes; of two classes, or the
    /// values or answers that are named.
    data_parts without_files(std::uint64_t seed) const {
        const index_t columns = config.columns.empty() ? 16 : static_cast<index_t>(config.columns.size()),
                      width = columns * (config.choices.piecewise ? config.choices.bins : 1);
        target_info info = numbered_classes(2);
        if (config.task == table_task::values || config.task == table_task::answers) {
            info.kind = config.task == table_task::values ? target_kind::values : target_kind::answers;
            info.names = config.target.empty() ? std::vector<std::string>{"target"} : config.target;
            info.mean.assign(info.names.size(), 0);
            info.scale.assign(info.names.size(), 1);
        }
        const bool is_text = config.columns.size() == 1 && config.columns == config.choices.text;
        const shape sample = config.history ? shape{config.history, width}
                             : is_text      ? shape{config.choices.text_length, 32}
                                            : shape{width};
        return synthetic_parts(sample, std::move(info), seed);
    }
    data_parts load(const std::filesystem::path& path) const {
        const learned_table learned = learn_table(read_csv(file_in(path), config.header), config);
        data_parts made = learned.parts();
        made.audit = [learned] { return audit_table(learned); };
        return made;
    }

private:
    // The file: the path itself, config.file in it, packed or not, or the only table in it.
    std::filesystem::path file_in(const std::filesystem::path& path) const {
        if (!std::filesystem::is_directory(path)) return path;
        for (const char* ending : {"", ".gz", ".zip"})
            if (const auto file = path / (config.file + ending); !config.file.empty() && std::filesystem::exists(file))
                return file;
        if (!config.file.empty()) return path / config.file;
        std::vector<std::string> tables;
        for (const auto& entry : std::filesystem::directory_iterator(path))
            for (const char* ending : {".csv", ".csv.gz", ".csv.zip"})
                if (entry.path().filename().string().ends_with(ending))
                    tables.push_back(entry.path().filename().string());
        std::ranges::sort(tables);
        require(tables.size() == 1, path.string(), ": ", tables.size(),
                " tables (.csv, .csv.gz, .csv.zip); set data.table.file to one of: ", listed(tables));
        return path / tables.front();
    }
};

}  // namespace cairn
