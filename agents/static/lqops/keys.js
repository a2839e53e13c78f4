/* Keyboard: keys that a page declares with data-key, and a list of them. Pages work without it.
   A key follows a link, opens a part of the page, or moves to a button. It never presses a button: Enter does. */
(function () {
  "use strict";

  var OFF = "lqops.keys.off";
  var REST_MS = 600;
  var STEPS = { j: 1, k: -1 };
  // A checkbox takes no letters, and keeps the focus for a moment when its dialog is closed.
  var TYPED = "input:not([type=checkbox], [type=radio]), textarea, select, [role=textbox], .ace_editor";
  var ROWS = "#result_list tbody th a[href]";

  function isOff() {
    return localStorage.getItem(OFF) === "yes";
  }

  function isTyping(place) {
    return place.isContentEditable || Boolean(place.closest(TYPED));
  }

  function label(node) {
    return node.dataset.keyLabel || (node.querySelector("summary") || node).textContent.trim();
  }

  function say(text) {
    document.querySelectorAll("[data-key-status]").forEach(function (place) { place.textContent = text; });
  }

  function use(node) {
    if (node.matches("details")) {
      node.open = true;
      (node.querySelector("textarea, input:not([type=hidden])") || node.querySelector("summary")).focus();
    } else if (node.matches("button")) {
      node.focus();
      say("Press Enter to confirm: " + label(node) + ".");
    } else {
      node.click();
    }
  }

  // Moves along the rows of a list.
  function step(by) {
    var links = Array.prototype.slice.call(document.querySelectorAll(ROWS));
    var place = links.indexOf(document.activeElement);
    var next = links[place < 0 ? 0 : place + by];
    if (next) {
      next.focus();
    }
    return links.length > 0;
  }

  function row(list, key, text) {
    var term = document.createElement("dt");
    var kbd = document.createElement("kbd");
    var words = document.createElement("dd");
    kbd.textContent = key;
    words.textContent = text;
    term.append(kbd);
    list.append(term, words);
  }

  function help() {
    var dialog = document.getElementById("lq-keys");
    if (!dialog || dialog.open) {
      return;
    }
    var list = dialog.querySelector("dl");
    list.textContent = "";
    declared().forEach(function (node) { row(list, node.dataset.key, label(node)); });
    if (document.querySelector(ROWS)) {
      row(list, "j k", "Next and previous row");
    }
    row(list, "/", "Search");
    row(list, "Ctrl K", "Search, also while typing");
    row(list, "?", "Keyboard shortcuts");
    dialog.querySelector("input").checked = !isOff();
    dialog.showModal();
  }

  function declared() {
    return Array.prototype.filter.call(document.querySelectorAll("[data-key]"), function (node) {
      return node.getClientRects().length > 0 && !node.disabled;
    });
  }

  document.addEventListener("keydown", function (event) {
    var isPlain = !event.ctrlKey && !event.metaKey && !event.altKey && !event.repeat && !event.isComposing;
    if (event.defaultPrevented || !isPlain || isOff() || isTyping(event.target) || document.querySelector("dialog[open]")) {
      return;
    }
    if (event.key === "?") {
      event.preventDefault();
      help();
      return;
    }
    if (event.key === "/") {
      event.preventDefault();
      event.stopPropagation(); // unfold's lists listen to it, too
      document.dispatchEvent(new Event("lqops:search"));
      return;
    }
    if (event.key in STEPS && step(STEPS[event.key])) {
      event.preventDefault();
      return;
    }
    var node = declared().find(function (one) { return one.dataset.key === event.key; });
    if (node) {
      event.preventDefault();
      use(node);
    }
  });

  document.addEventListener("DOMContentLoaded", function () {
    document.querySelectorAll("[data-keys-help]").forEach(function (button) { button.addEventListener("click", help); });
    var dialog = document.getElementById("lq-keys");
    if (dialog) {
      dialog.querySelector("input").addEventListener("change", function (event) {
        localStorage.setItem(OFF, event.target.checked ? "no" : "yes");
      });
    }
    // A page that came by itself after a decision: a second click that was meant for the page before decides nothing.
    var buttons = document.querySelectorAll("form[data-decides][data-rests] button[type=submit]");
    buttons.forEach(function (button) { button.disabled = true; });
    setTimeout(function () { buttons.forEach(function (button) { button.disabled = false; }); }, REST_MS);
  });
})();
