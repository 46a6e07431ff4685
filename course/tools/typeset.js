// Formulas to HTML by KaTeX: reads a JSON list [[TeX, displayed], …] from the standard input, prints a JSON list of
// HTML; a formula that KaTeX refuses becomes {"error": why}.  course/tools/formulas.py runs it.
const katex = require("katex");
const formulas = JSON.parse(require("fs").readFileSync(0, "utf8"));
const html = formulas.map(([tex, displayed]) => {
    try {
        return katex.renderToString(tex, { displayMode: displayed, throwOnError: true, strict: "error" });
    } catch (error) {
        return { error: error.message };
    }
});
process.stdout.write(JSON.stringify(html));
