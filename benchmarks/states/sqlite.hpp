#pragma once
// SQLite's door: a database in memory, statements with values bound to them, and rows as JSON.

#include <cairn/core/error.hpp>

#include <sqlite3.h>
#include <nlohmann/json.hpp>

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace cairn::states {

/// What a SELECT gives. A value is null, a number or a text.
struct table {
    std::vector<std::string> columns;
    std::vector<std::vector<nlohmann::json>> rows;
};

/// A text between quotes, as a name in SQL.
inline std::string quoted_name(std::string_view name) {
    std::string quoted = "\"";
    for (const char c : name) quoted += c == '"' ? std::string(2, c) : std::string(1, c);
    return quoted + '"';
}

/// A text as SQL has it.
inline std::string quoted_text(std::string_view text) {
    std::string quoted = "'";
    for (const char c : text) quoted += c == '\'' ? std::string(2, c) : std::string(1, c);
    return quoted + '\'';
}

/// One compiled statement.
class statement {
public:
    /// Runs it with these values for its question marks.
    template <class... Values>
    void run(const Values&... values) {
        int at = 0;
        (bind(++at, values), ...);
        while (step()) {}
    }

    /// All rows.
    table all() {
        table found;
        const int columns = sqlite3_column_count(statement_.get());
        for (int c = 0; c < columns; ++c) found.columns.emplace_back(sqlite3_column_name(statement_.get(), c));
        while (step()) {
            auto& row = found.rows.emplace_back();
            for (int c = 0; c < columns; ++c) row.push_back(value(c));
        }
        return found;
    }

private:
    friend class database;
    statement(sqlite3* in, std::string_view sql) : in_(in) {
        const char* rest = nullptr;
        sqlite3_stmt* compiled = nullptr;
        const int result = sqlite3_prepare_v2(in, sql.data(), static_cast<int>(sql.size()), &compiled, &rest);
        statement_.reset(compiled);
        require(result == SQLITE_OK, "SQL: ", sqlite3_errmsg(in), ": ", sql);
        const std::string_view left = sql.substr(static_cast<std::size_t>(rest - sql.data()));
        require(compiled && left.find_first_not_of(" \t\n;") == left.npos, "SQL: not one statement: ", sql);
    }

    void bind(int at, const nlohmann::json& v) {
        if (v.is_number_integer())
            sqlite3_bind_int64(statement_.get(), at, v.get<std::int64_t>());
        else if (v.is_number())
            sqlite3_bind_double(statement_.get(), at, v.get<double>());
        else if (v.is_string())
            bind(at, v.get_ref<const std::string&>());
        else
            sqlite3_bind_null(statement_.get(), at);
    }
    void bind(int at, const std::string& text) {
        sqlite3_bind_text(statement_.get(), at, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
    }
    void bind(int at, std::int64_t number) { sqlite3_bind_int64(statement_.get(), at, number); }
    void bind(int at, double number) { sqlite3_bind_double(statement_.get(), at, number); }

    // Whether there is a row; at the end the statement can be run again.
    bool step() {
        const int result = sqlite3_step(statement_.get());
        if (result == SQLITE_ROW) return true;
        const int reset = sqlite3_reset(statement_.get());
        require(result == SQLITE_DONE && reset == SQLITE_OK, "SQL: ", sqlite3_errmsg(in_));
        return false;
    }
    nlohmann::json value(int column) const {
        switch (sqlite3_column_type(statement_.get(), column)) {
            case SQLITE_INTEGER:
                return sqlite3_column_int64(statement_.get(), column);
            case SQLITE_FLOAT:
                return sqlite3_column_double(statement_.get(), column);
            case SQLITE_NULL:
                return nullptr;
            default: {
                const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
                return std::string(text ? text : "",
                                   static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column)));
            }
        }
    }

    sqlite3* in_;
    std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement_{nullptr, sqlite3_finalize};
};

/// A database in memory, which goes with the object.
class database {
public:
    database() {
        sqlite3* opened = nullptr;
        const int result = sqlite3_open(":memory:", &opened);
        connection_.reset(opened);
        require(result == SQLITE_OK, "SQLite: no database in memory: ", opened ? sqlite3_errmsg(opened) : "no memory");
        // A misspelt "name" is an error, not a text.
        sqlite3_db_config(opened, SQLITE_DBCONFIG_DQS_DML, 0, nullptr);
        sqlite3_db_config(opened, SQLITE_DBCONFIG_DQS_DDL, 0, nullptr);
    }

    statement prepare(std::string_view sql) const { return {connection_.get(), sql}; }
    /// Runs statements without values.
    void run(const std::string& sql) const {
        require(sqlite3_exec(connection_.get(), sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK,
                "SQL: ", sqlite3_errmsg(connection_.get()), ": ", sql);
    }

    /// From now on statements can read, and nothing else: no writing, no other file, no settings.
    void forbid_writing() const {
        sqlite3_set_authorizer(
            connection_.get(),
            [](void*, int action, const char*, const char* second, const char*, const char*) {
                switch (action) {
                    case SQLITE_SELECT:
                    case SQLITE_READ:
                    case SQLITE_RECURSIVE:
                        return SQLITE_OK;
                    case SQLITE_FUNCTION:
                        return second && std::string_view(second) == "load_extension" ? SQLITE_DENY : SQLITE_OK;
                    default:
                        return SQLITE_DENY;
                }
            },
            nullptr);
    }

private:
    std::unique_ptr<sqlite3, int (*)(sqlite3*)> connection_{nullptr, sqlite3_close};
};

}  // namespace cairn::states
