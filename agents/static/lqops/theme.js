// Pages without the admin's scripts follow the theme that was chosen there, or else the system's.
(() => {
  let chosen = "auto";
  try { chosen = JSON.parse(localStorage.getItem("_x_adminTheme")) || "auto"; } catch { /* no choice is kept */ }
  const dark = chosen === "dark" || (chosen === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.classList.toggle("dark", dark);
  document.documentElement.classList.toggle("dark-mode", dark); // its name in the style sheet of the API docs
})();
