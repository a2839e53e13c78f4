/* The palette: results while typing, arrows to choose, Enter to open. Without it, the search page does the same. */
(function () {
  "use strict";

  var WAIT_MS = 150;

  document.addEventListener("DOMContentLoaded", function () {
    var dialog = document.getElementById("lq-search");
    if (!dialog) {
      return;
    }
    var field = dialog.querySelector("input");
    var list = dialog.querySelector("[role=listbox]");
    var status = dialog.querySelector("[role=status]");
    var timer = 0;
    var asked = 0;

    function open() {
      if (!dialog.open) {
        dialog.showModal();
        field.select();
        ask();
      }
    }

    function choose(place) {
      Array.prototype.forEach.call(list.children, function (item, number) {
        item.setAttribute("aria-selected", String(number === place));
        if (number === place) {
          field.setAttribute("aria-activedescendant", item.id);
          item.scrollIntoView({ block: "nearest" });
        }
      });
    }

    function chosen() {
      return Array.prototype.findIndex.call(list.children, function (item) {
        return item.getAttribute("aria-selected") === "true";
      });
    }

    function part(name, text) {
      var node = document.createElement("span");
      node.className = name;
      node.textContent = text;
      return node;
    }

    function item(found, number) {
      var link = document.createElement("a");
      link.id = "lq-found-" + number;
      link.setAttribute("role", "option");
      link.href = found.link;
      link.tabIndex = -1;
      link.append(part("kind", found.kind), part("title", found.title), part("lq-faint", found.detail));
      return link;
    }

    function show(found) {
      list.replaceChildren.apply(list, found.map(item));
      field.removeAttribute("aria-activedescendant");
      status.textContent = found.length ? found.length + (found.length === 1 ? " result" : " results") : "No matches.";
      choose(0);
    }

    function ask() {
      var number = ++asked;
      dialog.dataset.busy = "yes";
      fetch(dialog.dataset.results + "?s=" + encodeURIComponent(field.value), { credentials: "same-origin" })
        .then(function (answer) {
          return answer.ok && !answer.redirected ? answer.json() : Promise.reject(new Error("gone"));
        })
        .then(function (answer) {
          if (number === asked) {
            show(answer.found);
            delete dialog.dataset.busy;
          }
        })
        .catch(function () {
          status.textContent = "The search failed. Try again.";
        });
    }

    field.addEventListener("input", function () {
      dialog.dataset.busy = "yes";
      clearTimeout(timer);
      timer = setTimeout(ask, WAIT_MS);
    });
    field.addEventListener("keydown", function (event) {
      var count = list.children.length;
      if ((event.key === "ArrowDown" || event.key === "ArrowUp") && count) {
        event.preventDefault();
        choose((chosen() + (event.key === "ArrowDown" ? 1 : count - 1)) % count);
      } else if (event.key === "Enter" && !event.isComposing) {
        event.preventDefault();
        // What was typed last counts, not the results of a moment before.
        if (!dialog.dataset.busy && chosen() >= 0) {
          list.children[chosen()].click();
        }
      }
    });
    dialog.addEventListener("click", function (event) {
      if (event.target === dialog) {
        dialog.close();
      }
    });
    document.querySelectorAll("[data-opens-search]").forEach(function (link) {
      link.addEventListener("click", function (event) {
        if (!event.ctrlKey && !event.metaKey && !event.shiftKey) {
          event.preventDefault();
          open();
        }
      });
    });
    document.addEventListener("lqops:search", open);
    document.addEventListener("keydown", function (event) {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && !event.altKey && !event.shiftKey) {
        event.preventDefault();
        if (!document.querySelector("dialog[open]")) {
          open();
        }
      }
    });
  });
})();
