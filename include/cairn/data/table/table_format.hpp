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
    data_parts without_files(std::uint64_t) const {
        fail("data.format = table: what a sample is depends on the file; random samples cannot stand for it");
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
