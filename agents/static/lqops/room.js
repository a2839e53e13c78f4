/* Keeps a part of a page fresh, and adds rows to a list of forms. Everything else works without it. */
(function () {
  "use strict";

  function refresh(part) {
    var wait = Number(part.dataset.every) * 1000;
    setTimeout(function () {
      if (document.hidden || part.querySelector("details[open]") || part.contains(document.activeElement)) {
        refresh(part);
        return;
      }
      fetch(part.dataset.from || location.href, { credentials: "same-origin" })
        .then(function (answer) {
          return answer.ok && !answer.redirected ? answer.text() : Promise.reject(new Error("gone"));
        })
        .then(function (text) {
          var fresh = new DOMParser().parseFromString(text, "text/html").getElementById(part.id);
          if (!fresh) {
            return;
          }
          part.replaceWith(fresh);
          if (fresh.dataset.every) {
            refresh(fresh);
          }
        })
        .catch(function () {
          refresh(part);
        });
    }, wait);
  }

  function addRow(button) {
    var list = document.getElementById(button.dataset.adds);
    var total = document.getElementById("id_" + button.dataset.prefix + "-TOTAL_FORMS");
    var blank = document.getElementById(button.dataset.adds + "-blank");
    var row = blank.content.firstElementChild.cloneNode(true);
    row.querySelectorAll("*").forEach(function (node) {
      ["name", "id", "for"].forEach(function (name) {
        var value = node.getAttribute(name);
        if (value) {
          node.setAttribute(name, value.replace("__prefix__", total.value));
        }
      });
    });
    var order = row.querySelector("[name$='-ORDER']");
    if (order) {
      order.value = Number(total.value) + 1;
    }
    total.value = Number(total.value) + 1;
    list.appendChild(row);
  }

  document.addEventListener("DOMContentLoaded", function () {
    // unfold would write a chosen file's name into a text field of its own widget; our file inputs show it themselves.
    document.querySelectorAll("input[type=file]").forEach(function (input) { input.hasChangeListener = true; });
    document.querySelectorAll("[data-every]").forEach(refresh);
    document.querySelectorAll("[data-adds]").forEach(function (button) {
      button.addEventListener("click", function () {
        addRow(button);
      });
    });
  });
})();
