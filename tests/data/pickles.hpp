#pragma once
// Pickles as Python 2 wrote them, protocol 2, opcode by opcode.

#include "data/writers.hpp"

namespace cairn::test {

inline bytes of_hexadecimal(std::string_view digits) {
    bytes out;
    for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
        out.push_back(static_cast<std::uint8_t>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16)));
    return out;
}

/// A NumPy array without the opcodes around it.
inline bytes pickled_array_body(const std::vector<int>& extents, const std::string& type, const bytes& elements,
                                bool fortran = false) {
    bytes out;
    const auto text = [&](const std::string& s) {
        out.push_back('U');
        out.push_back(static_cast<std::uint8_t>(s.size()));
        append(out, s);
    };
    const auto number = [&](int n) {
        out.push_back('J');
        append_number(out, static_cast<std::int32_t>(n), std::endian::little);
    };
    append(out, std::string("cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK"));
    out.push_back(0);
    append(out, std::string("\x85"));
    text("b");
    append(out, std::string("\x87R(K\x01("));
    for (const int extent : extents) number(extent);
    append(out, std::string("tcnumpy\ndtype\n"));
    text(type);
    number(0);
    number(1);
    append(out, std::string("\x87R(K\x03"));
    text("<");
    append(out, std::string("NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK"));
    out.push_back(0);
    append(out, std::string("tb"));
    out.push_back(fortran ? 0x88 : 0x89);
    out.push_back('T');
    append_number(out, static_cast<std::uint32_t>(elements.size()), std::endian::little);
    append(out, elements);
    append(out, std::string("tb"));
    return out;
}

inline bytes pickled(const bytes& body) {
    bytes out{0x80, 2};
    append(out, body);
    out.push_back('.');
    return out;
}

inline bytes pickled_array(const std::vector<int>& extents, const std::string& type, const bytes& elements,
                           bool fortran = false) {
    return pickled(pickled_array_body(extents, type, elements, fortran));
}

/// SciPy's csr_matrix of dense rows.
inline bytes pickled_csr(const std::vector<std::vector<float>>& rows, int columns) {
    std::vector<std::int32_t> begin{0}, column;
    std::vector<float> value;
    for (const auto& row : rows) {
        for (std::size_t c = 0; c < row.size(); ++c)
            if (row[c] != 0) {
                column.push_back(static_cast<std::int32_t>(c));
                value.push_back(row[c]);
            }
        begin.push_back(static_cast<std::int32_t>(column.size()));
    }
    bytes out;
    const auto key = [&](const std::string& s) {
        out.push_back('U');
        out.push_back(static_cast<std::uint8_t>(s.size()));
        append(out, s);
        append(out, std::string("q\x07"));  // a memo that is not recalled
    };
    const auto count = [](const auto& v) { return std::vector<int>{static_cast<int>(v.size())}; };
    append(out, std::string("cscipy.sparse.csr\ncsr_matrix\n)\x81}("));
    key("_shape");
    out.push_back('M');
    append_number(out, static_cast<std::uint16_t>(rows.size()), std::endian::little);
    out.push_back('M');
    append_number(out, static_cast<std::uint16_t>(columns), std::endian::little);
    append(out, std::string("\x86"));
    key("indptr");
    append(out, pickled_array_body(count(begin), "i4", elements_of(begin)));
    key("indices");
    append(out, pickled_array_body(count(column), "i4", elements_of(column)));
    key("maxprint");
    append(out, std::string("K2"));
    key("data");
    append(out, pickled_array_body(count(value), "f4", elements_of(value)));
    append(out, std::string("ub"));
    return pickled(out);
}

/// A defaultdict(list) of neighbours.
inline bytes pickled_graph(const std::vector<std::pair<int, std::vector<int>>>& neighbours) {
    bytes out;
    const auto number = [&](int n) {
        out.push_back('M');
        append_number(out, static_cast<std::uint16_t>(n), std::endian::little);
    };
    append(out, std::string("ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R("));
    for (const auto& [node, to] : neighbours) {
        number(node);
        append(out, std::string(to.size() == 1 ? "]" : "]("));
        for (const int n : to) number(n);
        append(out, std::string(to.size() == 1 ? "a" : "e"));
    }
    append(out, std::string("u"));
    return pickled(out);
}

}  // namespace cairn::test
