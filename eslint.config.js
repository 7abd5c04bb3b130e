import js from "@eslint/js";
import globals from "globals";

export default [
  { ignores: ["**/vendor/", "**/.venv/", "notebooks/"] },
  js.configs.recommended,
  {
    languageOptions: { globals: { ...globals.browser } },
    rules: { eqeqeq: "error", "no-var": "error", "prefer-const": "error", "no-eval": "error", "no-implied-eval": "error" },
  },
  { files: ["tests/**/*.js"], languageOptions: { globals: { ...globals.node } } },
];
