#pragma once
// A program in time as a picture: a row a rank, F blue, I teal, W green, B orange.

#include <cairn/parallel/pipeline/simulate.hpp>

#include <sstream>
#include <string>

namespace cairn {

inline std::string schedule_svg(const pipeline_program& program, const pipeline_times& times) {
    constexpr double row = 26, left = 30, shortest_width = 26;
    double shortest = times.makespan, first = std::numeric_limits<double>::infinity();
    for (const auto& rank : times.actions)
        for (const action_time& t : rank) {
            if (t.end > t.start) shortest = std::min(shortest, t.end - t.start);
            first = std::min(first, t.start);
        }
    if (!(times.makespan > 0)) return "<svg xmlns=\"http://www.w3.org/2000/svg\"/>\n";
    const double scale = std::min(shortest_width / shortest, 4000 / times.makespan);
    const double width = left + times.makespan * scale + 4, height = row * program.ranks + 4;
    std::ostringstream out;
    out << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << width << ' ' << height << "\" width=\""
        << width << "\" height=\"" << height
        << "\" font-family=\"sans-serif\" font-size=\"10\" text-anchor=\"middle\">\n"
        << "<rect width=\"100%\" height=\"100%\" fill=\"#f4f4f4\"/>\n";
    for (std::size_t r = 0; r < program.actions.size(); ++r) {
        const double top = row * static_cast<double>(r) + 3;
        out << "<text x=\"" << left / 2 << "\" y=\"" << top + 15 << "\">" << r << "</text>\n";
        for (std::size_t i = 0; i < program.actions[r].size(); ++i) {
            const action& a = program.actions[r][i];
            const action_time& t = times.actions[r][i];
            const char* fill = a.kind == action_kind::forward           ? "#8ab6e8"
                               : a.kind == action_kind::backward_input  ? "#7fd0c8"
                               : a.kind == action_kind::backward_weight ? "#9ed48a"
                                                                        : "#f2b56b";
            const double x = left + (t.start - first) * scale, w = (t.end - t.start) * scale;
            out << "<rect x=\"" << x << "\" y=\"" << top << "\" width=\"" << w << "\" height=\"" << row - 4
                << "\" fill=\"" << fill << "\" stroke=\"#555\" stroke-width=\"0.5\"><title>" << a << ", " << t.start
                << " to " << t.end << "</title></rect>";
            if (w >= 12)
                out << "<text x=\"" << x + w / 2 << "\" y=\"" << top + 15 << "\">" << static_cast<char>(a.kind)
                    << a.micro_batch << (program.virtual_stages > 1 || program.mirrored ? concat("·", a.stage) : "")
                    << "</text>";
            out << '\n';
        }
    }
    out << "</svg>\n";
    return out.str();
}

}  // namespace cairn
