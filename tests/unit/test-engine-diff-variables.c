#include "lib/test.h"

#include "base/cleanup.h"
#include "base/json.h"
#include "engine/diff-variables.h"

/* Both sides as JSON with ' for "; the result the same way. */
static json_t *parse(const char *text)
{
        char copy[4096];
        size_t n = 0;

        for (; text[n] && n < sizeof(copy) - 1; n++)
                copy[n] = text[n] == '\'' ? '"' : text[n];
        copy[n] = '\0';
        json_t *value = json_loads(copy, JSON_DECODE_ANY, NULL);
        ASSERT(value);
        return value;
}

static void check(const char *a, const char *b, const char *expected)
{
        _cleanup_json_ json_t *x = parse(a), *y = parse(b), *want = parse(expected), *got = cop_diff_variables(x, y);

        ASSERT(got);
        if (!json_equal(got, want)) {
                _cleanup_free_ char *text = json_dumps(got, JSON_SORT_KEYS);
                FAIL("%s", text);
        }
}

TEST(added_changed_removed_same_and_unsure)
{
        check("{'variables':[{'name':'z','type':'int','digest':'1'},{'name':'b','type':'int','digest':'1'},"
              "{'name':'gone','type':'str','digest':'3','preview':'x'},{'name':'f','type':'file','note':'open'}]}",
              "{'variables':[{'name':'b','type':'int','digest':'2','size':28},{'name':'z','type':'int','digest':'1'},"
              "{'name':'a','type':'list','shape':[2],'digest':'9'},{'name':'f','type':'file','digest':'7'}]}",
              "{'changes':[{'name':'a','change':'added','b':{'type':'list','shape':[2],'digest':'9'}},"
              "{'name':'b','change':'changed','a':{'type':'int','digest':'1'},'b':{'type':'int','digest':'2','size':28}"
              "},"
              "{'name':'gone','change':'removed','a':{'type':'str','digest':'3','preview':'x'}}],"
              "'unsure':[{'name':'f','type':'file','note':'open'}],'same':1,'truncated':false}");
        check("{'variables':[{'name':'x','type':'a.B','shape':[3,1]}]}",
              "{'variables':[{'name':'x','type':'a.B','shape':[3,2]}]}",
              "{'changes':[{'name':'x','change':'changed','a':{'type':'a.B','shape':[3,1]},'b':{'type':'a.B','shape':["
              "3,2]}}],"
              "'unsure':[],'same':0,'truncated':false}");
        check("{}", "{'truncated':true}", "{'changes':[],'unsure':[],'same':0,'truncated':true}");
}

TEST(what_a_liar_says_is_left_out)
{
        static const char *const liars[] = {
                "{'variables':7}",
                "{'variables':{'name':'x'}}",
                "{'variables':[1,null,'x',[],{}]}",
                "{'variables':[{'name':5,'type':'int'},{'name':null},{'name':['x']}]}",
        };

        for (size_t i = 0; i < ELEMENTSOF(liars); i++)
                check(liars[i], "{}", "{'changes':[],'unsure':[],'same':0,'truncated':false}");
        check("{'variables':[{'name':'x','type':7,'shape':[-1],'size':-3,'digest':['y'],'note':{},'preview':1,'more':1}"
              "]}",
              "{}",
              "{'changes':[{'name':'x','change':'removed','a':{'type':'?'}}],'unsure':[],'same':0,'truncated':false}");
        check("{'variables':[{'name':'x','type':'t','shape':[1.5],'size':2.5}]}", "{}",
              "{'changes':[{'name':'x','change':'removed','a':{'type':'t'}}],'unsure':[],'same':0,'truncated':false}");
}

TEST(the_number_of_variables_is_bounded)
{
        _cleanup_json_ json_t *list = json_array(), *a = json_object(), *b = json_object();
        char name[32];

        for (int i = 0; i < 5000; i++) {
                snprintf(name, sizeof(name), "v%d", i);
                json_array_append_new(list, json_pack("{s:s, s:s}", "name", name, "type", "int"));
        }
        json_object_set(a, "variables", list);
        _cleanup_json_ json_t *got = cop_diff_variables(a, b);
        ASSERT_EQ(json_array_size(json_object_get(got, "changes")), 2000);
        ASSERT(json_is_true(json_object_get(got, "truncated")));
}
